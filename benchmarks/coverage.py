"""Watch a small model of every model type of the installed Transformers, and write what was seen as a table.

python benchmarks/coverage.py rows.jsonl docs/coverage.md CHECKOUT      # continues where rows.jsonl ends

A model is built from the configuration of its type. Where none is small enough and no inputs are found for it, the
model and the inputs of the type's own tests are taken, if CHECKOUT is a folder with the repository of Transformers.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING

sys.path.insert(0, str(Path(__file__).parent))
from coverage_check import check_eager, check_forward, check_generation, check_training
from coverage_table import write_page
from tested_types import import_testers, iter_tested
from tiny_types import (
    DEEPER,
    MAX_PARAMETERS,
    build_configs,
    build_model,
    count_parameters,
    find_model_classes,
    iter_inputs,
)

SECONDS = 20  # of a core, for one type
MEMORY = 5 * 2**30


def check_type(model_type: str, checkout: Path | None) -> dict[str, Any]:
    """Build the smallest model of a type that runs, and check it; a deeper one if it has no attention."""
    failures: list[str] = []
    checked: dict[str, Any] = {}
    for how, model, inputs in iter_models(model_type, checkout, failures):
        if checked and how not in ("tests", DEEPER):
            continue
        try:
            with torch.no_grad():
                model(**inputs)
        except Exception as error:
            failures.append(f"{type(model).__name__}({', '.join(inputs)}): {type(error).__name__}: {error}")
            continue
        types = {str(getattr(getattr(part, "config", None), "model_type", "")) for part in model.modules()}
        row = {"class": type(model).__name__, "made": how, "inputs": sorted(inputs)}
        row |= {"parts": sorted(types - {"", model_type})} | run_checks(model, inputs)
        if row.get("attentions"):
            return row
        checked = checked or row
    return checked or {
        "not_built": (failures or ["no configuration"])[-1][:300],
        "failures": [text[:160] for text in failures],
    }


def iter_models(
    model_type: str, checkout: Path | None, failures: list[str]
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield models of a type, each with how it was made and inputs that it may take."""
    for how, config in build_configs(model_type):
        for kind in find_model_classes(model_type, type(config))[:4]:
            try:
                if count_parameters(kind, config) > MAX_PARAMETERS:
                    failures.append(f"{how}: too large")
                    continue
                model = build_model(kind, config)
                tries = list(iter_inputs(model))
            except Exception as error:
                failures.append(f"{how}: {kind.__name__}: {type(error).__name__}: {error}")
                continue
            yield from ((how, model, inputs) for inputs in tries)
    if checkout is not None:
        yield from (("tests", *built) for built in iter_tested(checkout, model_type, failures))


def run_checks(model: Any, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Run all checks; an error is part of the result, and what was found before it stays."""
    row: dict[str, Any] = {}
    checks = (check_forward, check_training, check_generation, check_eager)
    for check in checks:
        try:
            row |= check(model, inputs)
        except Exception:
            text = traceback.format_exc()
            row["raised"] = [*row.get("raised", []), f"{check.__name__}: {text[-700:]}"]
    return row


def run_apart(model_type: str, path: Path, checkout: Path | None) -> None:
    """Check a type in a process of its own, which writes its row; a crash or a stop at the limit is a row, too."""
    started = time.time()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            row = check_type(model_type, checkout)
        except BaseException:
            row = {"not_built": traceback.format_exc()[-300:]}
        write_row(path, {"type": model_type, "seconds": round(time.time() - started, 1)} | row)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        ended = f"stopped after {SECONDS} seconds" if os.WTERMSIG(status) == signal.SIGXCPU else "the process crashed"
        write_row(path, {"type": model_type, "not_built": ended})


def write_row(path: Path, row: dict[str, Any]) -> None:
    """Append a row to a file of JSON lines."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def main(rows: Path, page: Path | None, checkout: Path | None, types: list[str]) -> None:
    """Check all types that have no row yet, and write the page."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    done = {json.loads(line)["type"] for line in rows.read_text().splitlines()} if rows.exists() else set()
    check_type("llama", None)  # imports once what every process needs
    if checkout is not None:
        import_testers(checkout)
    for model_type in types or list(CONFIG_MAPPING):
        if model_type not in done:
            run_apart(model_type, rows, checkout)
    if page is not None:
        write_page(page, [json.loads(line) for line in rows.read_text().splitlines()])


if __name__ == "__main__":
    rows, page, checkout = (None if given == "-" else Path(given) for given in [*sys.argv[1:4], "-", "-", "-"][:3])
    if rows is None:
        sys.exit(f"usage: {sys.argv[0]} ROWS [PAGE [CHECKOUT [TYPE ...]]], where - leaves out PAGE or CHECKOUT")
    main(rows, page, checkout, sys.argv[4:])
