"""`regard demo`: train a model, print its predictions and draw its attention in about a minute."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.command_name import get_command_name
from regard.cli.devices import resolve_device
from regard.cli.threads import with_threads
from regard.tasks.actions import Flag

if TYPE_CHECKING:
    from regard.data.example import Example
    from regard.tasks.pairs.prediction import Prediction

RECIPE: dict[str, Any] = {
    "data": {"train": "dates", "corpus_size": 20_000},
    "model": {"name": "bahdanau", "hidden": 128, "embedding": 128},
    "training": {
        "steps": 300,
        "batch_tokens": 2560,
        "learning_rate": 4e-3,
        "validate_every": 75,
        "max_validation": 300,
    },
}
EXAMPLE_DATE = "vendredi 3 mars 2017"

NEXT_STEPS = """
Saved the picture {picture} and the run {run}. Next:
  echo "{shown}" | {regard} predict {run}
  {regard} evaluate {run}
  {regard} inspect {run}
  {regard} train reverse --out runs/reverse
  {regard} train your-pairs.tsv --out runs/yours
  {regard} --help"""


@with_threads
def demo(*, out: Path = Path("demo/dates"), device: str = "auto", quiet: Flag = False) -> None:
    """Train a model that normalizes dates in 32 languages and show its attention, in about a minute on two cores.

    Args:
        out: Run folder; the picture is saved next to it.
        device: auto, cpu, cuda or cuda:1.
        quiet: Print no progress.
    """
    from regard.api import load, train
    from regard.data.corpora import generate_built_in
    from regard.views.matrix import save_matrix, use_matplotlib
    from regard.views.terminal import draw

    picture = out.parent / f"{out.resolve().name}.png"
    with use_matplotlib():  # report a missing package now, not after a minute
        pass
    resolved_device = resolve_device(device)
    train(RECIPE, out, device=resolved_device, quiet=quiet)
    model = load(out, resolved_device)
    _, unseen = generate_built_in("dates", train=0, valid=10, seed=1)
    print("\nPredictions for ten dates that are not in the training data:")
    print_predictions(unseen, model.predict([example.source for example in unseen]))
    attention_map = model.attention_map(model.predict(EXAMPLE_DATE, return_weights=True))
    print("\nAttention: a row for each character of the output, a column for each character of the input:\n")
    print(draw(attention_map))
    save_matrix(attention_map, picture)
    print(NEXT_STEPS.format(picture=picture, run=out, shown=EXAMPLE_DATE, regard=get_command_name()))
    sys.stdout.flush()


def print_predictions(examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
    """Print sources, predictions, and the correct target where the prediction is wrong."""
    from regard.views.display import display_width

    widest = max(display_width(example.source) for example in examples)
    for example, prediction in zip(examples, predictions, strict=True):
        padding = " " * (widest - display_width(example.source))
        correction = "" if prediction.text == example.target else f"  (correct: {example.target})"
        print(f"  {example.source}{padding}  {prediction.text}{correction}")
