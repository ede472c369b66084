from contextlib import contextmanager

import pytest

from regard.attention.shared import shared


def test_the_last_to_go_leaves_a_shared_context():
    said = []

    @contextmanager
    def context():
        said.append("enter")
        yield
        said.append("leave")

    first, second = shared("key", context), shared("key", context)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert said == ["enter"]
    with shared("key", context):
        second.__exit__(None, None, None)
        assert said == ["enter"]
    assert said == ["enter", "leave"]
    with pytest.raises(ZeroDivisionError), shared("key", context), shared("other", context):
        raise ZeroDivisionError
    assert said == ["enter", "leave", "enter", "enter", "leave", "leave"]


def test_a_context_that_fails_is_not_held():
    @contextmanager
    def failing():
        raise ZeroDivisionError
        yield

    for _ in range(2):
        with pytest.raises(ZeroDivisionError), shared("failing", failing):
            pass
