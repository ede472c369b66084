"""`regard demo`: a trained model, its predictions and a picture of its attention in about a minute."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.devices import chosen_device
from regard.cli.names import as_typed
from regard.tasks.actions import Flag

if TYPE_CHECKING:
    from regard.data.example import Example
    from regard.tasks.pairs.predictor import Prediction

RECIPE: dict[str, Any] = {
    "data": {"train": "dates", "count": 20_000},
    "model": {"name": "bahdanau", "hidden": 128, "embedding": 128},
    "training": {"steps": 300, "tokens": 2560, "rate": 4e-3, "validate_every": 75, "validate_most": 300},
}
SHOWN = "vendredi 3 mars 2017"

TALK = """
The picture is {picture}, the run {run}. To go on:
  echo "{shown}" | {regard} predict {run}
  {regard} evaluate {run}
  {regard} inspect {run}
  {regard} train reverse --out runs/reverse
  {regard} train your-pairs.tsv --out runs/yours
  {regard} --help"""


def demo(*, out: Path = Path("demo/dates"), device: str = "auto", quiet: Flag = False) -> None:
    """Learn to read dates in 32 languages, about a minute on two cores, and show where the model looks.

    Args:
        out: The run folder; the picture goes beside it.
        device: auto, cpu, cuda, cuda:1.
        quiet: Show no progress.
    """
    from regard.api import load, train
    from regard.data.corpora import built_in
    from regard.views.matrix import drawing, save_matrix
    from regard.views.terminal import draw

    picture = out.parent / f"{out.resolve().name}.png"
    with drawing():  # what is missing for the picture is said now, not after a minute
        pass
    where = chosen_device(device)
    train(RECIPE, out, device=where, quiet=quiet)
    model = load(out, where)
    _, unseen = built_in("dates", train=0, valid=10, seed=1)
    print("\nTen dates that nobody trained on:")
    print_table(unseen, model.predict([example.source for example in unseen]))
    shown = model.attention_map(model.predict(SHOWN, return_weights=True))
    print(f"\nWhere it looks, a row for each letter that it writes:\n\n{draw(shown)}")
    save_matrix(shown, picture)
    print(TALK.format(picture=picture, run=out, shown=SHOWN, regard=as_typed()))
    sys.stdout.flush()


def print_table(examples: Sequence[Example], predictions: Sequence[Prediction]) -> None:
    """Sources, what the model makes of them, and what would be right where it is not."""
    from regard.views.display import display_width

    widest = max(display_width(example.source) for example in examples)
    for example, prediction in zip(examples, predictions, strict=True):
        room = " " * (widest - display_width(example.source))
        right = "" if prediction.text == example.target else f"  (right: {example.target})"
        print(f"  {example.source}{room}  {prediction.text}{right}")
