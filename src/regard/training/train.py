"""The steps from what is prepared to a trained run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from regard.attention.scores import without_gradient
from regard.errors import RegardError
from regard.files import write_text
from regard.models import MODELS, Model
from regard.models.kernel_widths import set_kernel_widths
from regard.recipe import build_model
from regard.run import Run
from regard.settings import shown
from regard.training.engines import new_engine
from regard.training.loop import Counters, Trainer
from regard.training.prepared import Prepared
from regard.training.talk import Talk


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


def new_model(ready: Prepared, start: Run | None, talk: Talk) -> Model:
    """The model with its first parameters."""
    torch.manual_seed(ready.recipe.training.seed)
    model = build_model(ready.recipe, ready.tokenizers)
    if model.most_places is not None and ready.longest > model.most_places:
        raise RegardError(
            f"model.longest is {model.most_places}, the longest text has {ready.longest} tokens; "
            "raise it, or lower --data.most-tokens"
        )
    for score in sorted(set(without_gradient(model).values())):
        talk.say(f"note: the score {score} gives query and keys no gradient; where it looks is not learnt")
    ready.initialise(model)
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
                "task": MODELS[recipe.model["name"]].task,
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
