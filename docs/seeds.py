"""Repeat a page of the documentation with other seeds: `python docs/seeds.py PAGE EXPRESSION SEED [SEED ...]`.

Every training of the page gets the seed, and the expression is printed as soon as a block has defined its names. The
tables of the course that give several seeds were made this way.

    python docs/seeds.py docs/course/1-one-vector-is-not-enough.md exact 0 1 2 3 4
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from notebooks import BLOCK

import regard


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Give every training this seed."""
    train = regard.train

    def train_with_seed(recipe: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        return train({**recipe, "training": {**recipe["training"], "seed": seed}}, *arguments, **options)

    regard.train = train_with_seed
    try:
        yield
    finally:
        regard.train = train


def run_until(page: str, expression: str) -> object:
    """Run the blocks of a page until an expression can be evaluated; return its value."""
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in BLOCK.finditer(page):
        with redirect_stdout(io.StringIO()):
            exec(block["code"], namespace)
        with suppress(NameError):
            return eval(expression, namespace)
    raise SystemExit(f"{expression}: not defined on this page")


def main(path: str, expression: str, *seeds: str) -> None:
    """Print the value of the expression for each seed."""
    page = Path(path).read_text(encoding="utf-8")
    for seed in map(int, seeds or ("0",)):
        with TemporaryDirectory() as folder, chdir(folder), seeded(seed):
            print(seed, run_until(page, expression), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
