"""Watch a small model of every model type of the installed Transformers, and write what was seen as a table.

python benchmarks/coverage.py rows.jsonl docs/coverage.md      # continues where rows.jsonl ends
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
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING

sys.path.insert(0, str(Path(__file__).parent))
from coverage_check import check_eager, check_forward, check_generation, check_training
from coverage_table import write_page
from tiny_types import MAX_PARAMETERS, build_configs, build_model, count_parameters, find_model_classes, iter_inputs

SECONDS = 10  # of a core, for one type
MEMORY = 5 * 2**30


def check_type(model_type: str) -> dict[str, Any]:
    """Build the smallest model of a type that runs, and check it."""
    failures: list[str] = []
    for how, config in build_configs(model_type):
        for kind in find_model_classes(model_type, type(config))[:4]:
            try:
                if count_parameters(kind, config) > MAX_PARAMETERS:
                    failures.append(f"{how}: too large")
                    continue
                model = build_model(kind, config)
            except Exception as error:
                failures.append(f"{how}: {kind.__name__}: {type(error).__name__}: {error}")
                continue
            inputs = find_inputs(model, failures)
            if inputs is not None:
                return {"class": kind.__name__, "made": how, "inputs": sorted(inputs)} | run_checks(model, inputs)
    return {"not_built": (failures or ["no configuration"])[-1][:300], "failures": [text[:160] for text in failures]}


def find_inputs(model: Any, failures: list[str]) -> dict[str, torch.Tensor] | None:
    """Return the first inputs that a model takes."""
    for inputs in iter_inputs(model):
        try:
            with torch.no_grad():
                model(**inputs)
        except Exception as error:
            failures.append(f"{type(model).__name__}({', '.join(inputs)}): {type(error).__name__}: {error}")
            continue
        return inputs
    return None


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


def run_apart(model_type: str, path: Path) -> None:
    """Check a type in a process of its own, which writes its row; a crash or a stop at the limit is a row, too."""
    started = time.time()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            row = check_type(model_type)
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


def main(rows: Path, page: Path | None, types: list[str]) -> None:
    """Check all types that have no row yet, and write the page."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    done = {json.loads(line)["type"] for line in rows.read_text().splitlines()} if rows.exists() else set()
    check_type("llama")  # imports once what every process needs
    for model_type in types or list(CONFIG_MAPPING):
        if model_type not in done:
            run_apart(model_type, rows)
    if page is not None:
        write_page(page, [json.loads(line) for line in rows.read_text().splitlines()])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] != "-" else None, sys.argv[3:])
