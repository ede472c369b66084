"""From a recipe to a trained run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from regard.attention.scores import without_gradient
from regard.errors import RegardError
from regard.files import write_text
from regard.models import AttentiveClassifier, AttentiveTagger, LanguageModel, Model, Seq2Seq
from regard.models.kernel_widths import set_kernel_widths
from regard.recipe import Recipe, build_model, task_of, to_recipe
from regard.run import Run, checkpoints_of
from regard.settings import shown
from regard.training.engines import new_engine
from regard.training.going_on import (
    check_data,
    check_settings,
    going_on_from,
    refuse_after_start,
    started_from,
    tuned,
)
from regard.training.loop import Counters, Trainer
from regard.training.pairs import prepare_pairs
from regard.training.prepared import Prepared
from regard.training.reading import forget_reading, read_first
from regard.training.settings import ReadingSettings
from regard.training.talk import Talk


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
        asked = going_on_from(run, table) if going_on else tuned(table, start, where)
        recipe = to_recipe(asked, where)
        if going_on:
            check_settings(run, recipe)
        elif start is not None:
            refuse_after_start(recipe, start, where)
        ready = prepare(recipe, run, run if going_on else start, device, talk)
        if going_on:
            check_data(run, ready.data["sha256"])
            run.write_recipe(ready.recipe.table())
            run.write_card(run.read_card())
        model = new_model(ready, start, talk)
        begin(run, ready, model, start, talk)
        with deterministic(ready.recipe.training.deterministic):
            if ready.recipe.data.unlabelled is not None and not checkpoints_of(run):
                assert isinstance(model, (AttentiveClassifier, AttentiveTagger))
                read_first(run, ready.recipe, ready.reading, model.reader, device, talk)
                set_kernel_widths(model.cpu(), ready.first)  # by what the reader says now
            counters = fit(run, ready, model, device, talk)
        forget_reading(run)
        return counters


@contextmanager
def left_as_it_was(run: Run, talk: Talk) -> Iterator[None]:
    """Remove what was made for a run that could not begin."""
    try:
        yield
    except BaseException as error:
        if not run.card_file.exists():
            run.discard()
            if isinstance(error, KeyboardInterrupt):
                talk.say("stopped before the first update; nothing was saved")
        raise


def prepare(recipe: Recipe, run: Run, home: Run | None, device: str, talk: Talk) -> Prepared:
    """The data as batches, and the recipe with nothing left open; tokenizers are learnt, or taken from a run."""
    torch.manual_seed(recipe.training.seed)
    task = task_of(recipe)
    of_labels = {
        "training.class_weights": recipe.training.class_weights,
        "data.vectors": recipe.data.vectors,
        "data.unlabelled": recipe.data.unlabelled,
        **{f"reading.{name}": found for name, found in vars(recipe.reading).items()},
    }
    usual: Mapping[str, object] = {f"reading.{name}": found for name, found in vars(ReadingSettings()).items()}
    usual = {"training.class_weights": 0.0, **usual}
    for name, found in of_labels.items() if task in ("pairs", "text") else ():
        if found != usual.get(name):
            raise RegardError(f"{name} is {shown(found)}, which the task {task} has no use for; leave it out")
    if task == "text":
        from regard.training.text import prepare_text

        return prepare_text(recipe, run, home, device, talk)
    if task in ("label", "tag"):
        from regard.training.labels import prepare_labels, prepare_tags

        return (prepare_labels if task == "label" else prepare_tags)(recipe, home, device, talk)
    return prepare_pairs(recipe, home, device, talk)


def new_model(ready: Prepared, start: Run | None, talk: Talk) -> Model:
    """The model with its first parameters."""
    torch.manual_seed(ready.recipe.training.seed)
    model = build_model(ready.recipe, ready.tokenizers)
    most = model.most_places if isinstance(model, (Seq2Seq, LanguageModel)) else None
    if most is not None and ready.longest > most:
        raise RegardError(
            f"model.longest is {most}, the longest text has {ready.longest} tokens; "
            "raise it, or lower --data.most-tokens"
        )
    for score in sorted(set(without_gradient(model).values())):
        talk.say(f"note: the score {score} gives query and keys no gradient; where it looks is not learnt")
    if ready.vectors is not None:
        assert isinstance(model, (AttentiveClassifier, AttentiveTagger))
        model.reader.take_vectors(ready.vectors)
    set_kernel_widths(model, ready.first)
    if start is not None:
        take_over(model, start)
    return model


def take_over(model: Model, start: Run) -> None:
    """Start from the parameters of another run."""
    found, own = start.read_parameters(), model.state_dict()
    for name, tensor in own.items():
        if name not in found or found[name].shape != tensor.shape:
            was = tuple(found[name].shape) if name in found else "not there"
            raise RegardError(f"{start.path}: {name} is {was}, here {tuple(tensor.shape)}; --from needs the same model")
    model.load_state_dict({name: found[name] for name in own})


def begin(run: Run, ready: Prepared, model: Model, start: Run | None, talk: Talk) -> None:
    """Write down what is about to be trained, and say it."""
    parameters = sum(p.numel() for p in model.parameters())
    recipe = ready.recipe
    if not run.card_file.exists():
        write_text(run.tokenizer_file, ready.tokenizers.to_json())
        run.write_recipe(recipe.table())
        run.write_card(
            {
                "task": task_of(recipe),
                "model": recipe.model["name"],
                "parameters": parameters,
                "vocabulary": ready.tokenizers.vocabulary,
                "data": ready.data,
                "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                **({"from": str(start.path)} if start else {}),
            }
        )
    sizes = ", ".join(f"{name} {shown(value)}" for name, value in recipe.model.items() if name != "name")
    talk.say(f"model: {recipe.model['name']}, {parameters:,} parameters ({sizes})")
    training = recipe.training
    talk.say(
        f"training: {training.steps} updates of {training.tokens} {ready.each} at the most, "
        f"rate {training.rate:g}, validation every {training.validate_every}, best by {training.metric}"
    )
    talk.say(f"batches: {ready.amount}")


def fit(run: Run, ready: Prepared, model: Model, device: str, talk: Talk) -> Counters:
    """Run the loop."""
    training = ready.recipe.training
    assert training.smoothing is not None
    engine = new_engine(ready.step(model, training.smoothing), training, device)
    return Trainer(engine, ready.batches, ready.validate, training, run, talk).train()


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """The same bits each time, where the device would rather be fast."""
    before = torch.are_deterministic_algorithms_enabled()
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS needs for it
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
