from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.api import train
from regard.training.loop import Trainer


@pytest.fixture
def begin(monkeypatch) -> Callable[[dict[str, Any], Path], None]:
    """What begins a run and is killed before its first update."""

    def killed(self: Trainer) -> None:
        raise OSError("no light")

    def begun(table: dict[str, Any], run: Path) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "update", killed)
            with pytest.raises(OSError, match="no light"):
                train(table, run, quiet=True)

    return begun
