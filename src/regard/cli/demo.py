"""`regard demo`: a first picture."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from regard.errors import RegardError

TALK = """\
The picture is {path}

It shows Nadaraya-Watson regression as attention: noisy points of a curve are keys (x)
and values (y), and the estimate at x is attend(x, keys, values). One column for each
kernel: above, its estimate beside the true curve; below, its weights, a row for each
query and a column for each point.

To go on:
  {regard} demo --out regression.svg    the same picture, to be scaled
  {regard} bench attention --quick      what attention costs on this machine
  {regard} --help                       all there is"""


def demo(*, out: Path = Path("demo/regression.png")) -> None:
    """Draw regression by attention: each kernel, its curve and its weights.

    Args:
        out: The picture, as .png or .svg.
    """
    from regard.views.regression import draw_regression

    try:
        path = draw_regression(out)
    except OSError as error:
        raise RegardError(f"{out}: cannot be written: {error.strerror}") from None
    print(TALK.format(path=path, regard=as_typed()))


def as_typed() -> str:
    """How this command can be called from here: by its name, or by its path where the name is not found."""
    return "regard" if shutil.which("regard") else os.path.relpath(sys.argv[0])
