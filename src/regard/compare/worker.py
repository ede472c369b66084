"""One training of a comparison, in a process of its own: train, test, look, and write the result as JSON.

python -m regard.compare.worker FOLDER VARIANT SEED
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard import __version__
from regard.api import look, train
from regard.compare.plan import Plan, Variant, read_plan
from regard.errors import RegardError
from regard.files import write_text
from regard.messages import print_message
from regard.run import Run
from regard.tasks.item_scores import ItemScores
from regard.tasks.loading import load
from regard.tasks.predictor import Predictor

LOOKED_AT = 3
MAX_LOOK_WORDS = 16
"""Number of test items to look at, and the maximum number of words, so that their maps fit beside each other."""


def get_run_folder(folder: Path, variant: Variant, seed: int) -> Path:
    """Return the run folder of a training."""
    return folder / "runs" / f"{variant.slug}-{seed}"


def get_result_file(folder: Path, variant: Variant, seed: int) -> Path:
    """Return the file of the result of a training."""
    return folder / "results" / f"{variant.slug}-{seed}.json"


def run_training(folder: Path, plan: Plan, variant: Variant, seed: int) -> None:
    """Train a variant with a seed, or resume its training; then test it and write the result."""
    run = get_run_folder(folder, variant, seed)
    table = {**variant.table, "training": {**variant.table.get("training", {}), "seed": seed}}
    counters = train(table, run, device=plan.device, quiet=True, recipe_name=variant.name)
    training_memory = measure_peak_memory(plan.device)
    predictor = load(run, plan.device)
    start = time.perf_counter()
    scores = predictor.task.score_items(predictor, plan.test)
    result = {
        "variant": variant.name,
        "seed": seed,
        "versions": f"regard {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
        "parameters": predictor.parameters,
        "tokenizer": Run(run).read_card()["sha256"].get("tokenizer.json"),
        "steps": counters.step,
        "tokens": counters.tokens,
        "seconds": counters.seconds,
        "memory": training_memory,
        "test_seconds": time.perf_counter() - start,
        "curve": Run(run).read_metrics(),
        "metric": predictor.recipe.training.metric,
        "test": scores.to_json(),
        "looks": look_at_texts(predictor, plan.texts or choose_texts(scores)),
    }
    write_text(get_result_file(folder, variant, seed), json.dumps(result, ensure_ascii=False))


def measure_peak_memory(device: str) -> int:
    """Return the peak memory so far in bytes: of the GPU, or of this process."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated(device)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def choose_texts(scores: ItemScores) -> list[str]:
    """Choose test items of different lengths to look at: short enough for a picture, the same for every model."""
    words = np.array([len(text.split()) for text in scores.inputs])
    order = np.argsort(words, kind="stable")
    order = order[words[order] <= MAX_LOOK_WORDS] if (words <= MAX_LOOK_WORDS).any() else order[:1]
    chosen = [order[round(share * (len(order) - 1))] for share in np.linspace(0.3, 1.0, LOOKED_AT)]
    return list(dict.fromkeys(scores.inputs[index] for index in chosen))


def look_at_texts(predictor: Predictor[Any], texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the attention map of each text, or why there is none."""
    records = []
    for text in texts:
        try:
            records.append({"text": text, "map": look(predictor, text).record()})
        except RegardError as error:
            records.append({"text": text, "reason": str(error)})
    return records


def main(arguments: Sequence[str]) -> int:
    """Run the training that the arguments name; errors of the user are one line on stderr and status 2."""
    folder, name, seed = Path(arguments[0]), arguments[1], int(arguments[2])
    try:
        plan = read_plan(folder)
        variant = next(variant for variant in plan.variants if variant.name == name)
        run_training(folder, plan, variant, seed)
    except RegardError as error:
        print_message(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
