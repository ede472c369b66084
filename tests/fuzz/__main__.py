"""Run the fuzzer: `python -m tests.fuzz --cases 100000`."""

import argparse
import faulthandler
import os
import sys
from pathlib import Path

import torch

from .runner import fuzz, limit_memory
from .samples import prepare
from .targets import SLOW, TARGETS


def main() -> int:
    """Fuzz, print failures and how to repeat them, and return 1 if there were any."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="number of cases of all targets together")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers")
    parser.add_argument("--first", type=int, default=0, help="index of the first case of each target")
    parser.add_argument("--targets", default="", help=f"names with commas between them, of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="folder for cases that fail")
    options = parser.parse_args()
    names = options.targets.split(",") if options.targets else list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"unknown target {min(unknown)}; choose from {', '.join(TARGETS)}")
    torch.set_num_threads(1)
    os.fsync = lambda fd: None  # nothing that is broken here has to survive a power cut
    faulthandler.enable()
    prepare()
    with limit_memory():
        outcomes = fuzz(
            {name: TARGETS[name] for name in names},
            options.cases,
            options.seed,
            first=options.first,
            seconds=options.seconds,
            failures=options.failures,
            report=lambda line: print(line, flush=True),
            slow=SLOW,
        )
    for name, outcome in outcomes.items():
        print(f"{name:12} {outcome}")
    failed = sum(len(outcome.failures) for outcome in outcomes.values())
    if failed:
        print(f"{failed:,} failures; their files are in {options.failures}")
    return 1 if failed else 0


sys.exit(main())
