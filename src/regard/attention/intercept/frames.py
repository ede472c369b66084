"""The modules of a watched model that are running, from the outermost to the innermost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass(eq=False)
class Frame:
    """One running call of a module."""

    path: str
    module: nn.Module
    parent: Frame | None
    handled: BaseException | None = None  # the exception that was handled when the module was called
    in_one_piece: bool = False  # whether torch may run the module as one operator
    guard: Any = None  # switches interception off, so that torch keeps its fast path
    active: bool = True
    attended: bool = False  # whether attention was recorded here or below
    pending: list[Any] = field(default_factory=list)  # softmaxes that attention was computed with
    deferred: list[Any] = field(default_factory=list)  # attention whose weights may be rescaled until it returns
    captured: list[Any] = field(default_factory=list)  # what was recorded for it
    softmaxes: int = 0  # how many it computed itself
    samples: bool = False  # whether it sampled values at positions, as deformable attention does

    def find_active(self) -> Frame | None:
        """Return this frame, or the innermost one around it that still runs."""
        frame: Frame | None = self
        while frame is not None and not frame.active:
            frame = frame.parent
        return frame
