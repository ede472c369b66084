"""CPU threads: the option `--threads`, and how long idle threads spin before they sleep."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import MutableMapping
from typing import Annotated, Any

from cyclopts import Parameter

from regard.bounds import Bounds
from regard.cli.options import Command, keyword, with_parameters

SHORT_SPIN = {
    "GOMP_SPINCOUNT": "1000",  # libgomp: torch for Linux; its default is 300,000 rounds
    "KMP_BLOCKTIME": "1",  # libomp and libiomp, in ms: torch for macOS and Windows; their default is 200
}
OPENMP_PREFIXES = ("OMP_", "GOMP_", "KMP_")

MAX_THREADS = 1024
THREADS = Annotated[int | None, Parameter(help="Number of CPU threads; chosen by torch by default.")]


def shorten_spin(environment: MutableMapping[str, str]) -> None:
    """Let threads that wait for each other soon sleep, unless the user has set any variable of OpenMP.

    Threads that spin keep a core from the thread they wait for if other programs are running.
    The variables must be set before torch is imported; child processes inherit them.
    """
    if not any(name.startswith(OPENMP_PREFIXES) for name in environment):
        environment.update(SHORT_SPIN)


def with_threads(command: Command) -> Command:
    """Add the option `--threads` to a command."""

    @functools.wraps(command)
    def run(*arguments: Any, threads: int | None = None, **values: Any) -> None:
        set_threads(threads)
        command(*arguments, **values)

    parameters = inspect.signature(command, eval_str=True).parameters.values()
    return with_parameters(run, [*parameters, keyword("threads", THREADS, None)])  # type: ignore[return-value]


def set_threads(count: int | None) -> None:
    """Set the number of CPU threads of this process and its children; None keeps the default.

    `torch.set_num_threads` alone does not reach MKL in other Python threads, such as those of the server.

    Raises:
        RegardError: If the number is out of bounds.
    """
    if count is None:
        return
    Bounds(1, MAX_THREADS).check("--threads", count)
    os.environ["OMP_NUM_THREADS"] = str(count)  # read when torch is imported

    import torch

    torch.set_num_threads(count)
