"""Every layer without a recurrence compiles as one graph, with the results of eager code."""

import pytest

from ..attention.test_compile import run_python


@pytest.mark.slow
def test_layers_are_one_graph():
    run_python("-m", "tests.layers.compile_cases", "aot_eager")
