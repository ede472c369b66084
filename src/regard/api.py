"""What `import regard` offers, over `TASKS`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard.errors import RegardError
from regard.run import Run
from regard.tasks import task_of, to_recipe
from regard.training.going_on import check_data, check_settings, going_on_from, started_from, tuned
from regard.training.loop import Counters
from regard.training.talk import Talk
from regard.training.train import begin, deterministic, fit, left_as_it_was, new_model


def train(
    table: Mapping[str, Any],
    out: str | Path,
    *,
    device: str = "cpu",
    base: str | Path | None = None,
    quiet: bool = False,
    where: str = "recipe",
) -> Counters:
    """Train what a recipe says in the folder `out`, or go on with what was begun there.

    Args:
        table: The recipe as plain values; what it leaves open is chosen to suit the data.
        out: The run folder.
        device: Where to train.
        base: A run whose tokenizer, model and parameters are taken over, to tune them.
        quiet: Say nothing but in the run's log.
        where: What the recipe is called in errors.
    """
    if not isinstance(table, Mapping):
        raise RegardError(f'train: found {table!r}; a recipe such as {{"data": {{"train": "pairs.tsv"}}}} is needed')
    run, start = Run(Path(out)), None if base is None else Run(Path(base))
    if start is not None and start.path.resolve() == run.path.resolve():
        raise RegardError(f"{run.path}: is the run to start from; choose another --out")
    going_on = run.exists()
    talk = Talk(run, quiet=quiet)
    if going_on:
        start = started_from(run, start)
    with run.locked(), left_as_it_was(run, talk):
        asked = going_on_from(run, table, task_of(run.read_recipe()).recipe) if going_on else tuned(table, start, where)
        task, recipe = task_of(asked, where), to_recipe(asked, where)
        if going_on:
            check_settings(run, recipe)
        elif start is not None:
            task.check_base(recipe, start, where)
        torch.manual_seed(recipe.training.seed)
        ready = task.prepare(recipe, run, run if going_on else start, device, talk)
        if going_on:
            check_data(run, ready.data["sha256"])
            run.write_recipe(ready.recipe.table())
            run.write_card(run.read_card())
        model = new_model(ready, start, talk)
        begin(run, ready, model, start, talk)
        with deterministic(ready.recipe.training.deterministic):
            task.pretrain(run, ready, model, device, talk)
            counters = fit(run, ready, model, device, talk)
        task.clean_up(run)
        return counters
