"""Train a prepared run: build the model, record the start, run the loop."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from regard.attention.scores import find_scores_without_gradient
from regard.errors import RegardError
from regard.files import write_text
from regard.layers.source_attention import find_added_projections
from regard.models import MODELS, Model
from regard.models.kernel_widths import set_kernel_widths
from regard.recipe import build_model
from regard.run import Run
from regard.settings import format_value
from regard.training.engines import build_engine
from regard.training.loop import Counters, Trainer
from regard.training.prepared import Prepared
from regard.training.reporter import Reporter


def resolve_epochs(prepared: Prepared) -> Prepared:
    """Turn a number of epochs into the number of updates that they take; the run's recipe keeps only that."""
    training = prepared.recipe.training
    if training.epochs is None:
        return prepared
    batches = len(prepared.batches.plan(0))
    steps = max(1, math.ceil(training.epochs * batches / training.gradient_accumulation))
    recipe: Any = prepared.recipe
    return replace(prepared, recipe=replace(recipe, training=replace(training, steps=steps, epochs=None)))


@contextmanager
def clean_up_on_failure(run: Run, reporter: Reporter) -> Iterator[None]:
    """Remove the files of a run that fails before it starts."""
    try:
        yield
    except BaseException as error:
        if not run.card_file.exists():
            run.discard()
            if isinstance(error, KeyboardInterrupt):
                reporter.info("stopped before the first step; nothing was saved")
        raise


def initialize_model(prepared: Prepared, base: Run | None, reporter: Reporter) -> Model:
    """Build the model and initialize its parameters."""
    torch.manual_seed(prepared.recipe.training.seed)
    model = build_model(prepared.recipe, prepared.tokenizers)
    if model.max_length is not None and prepared.max_length > model.max_length:
        raise RegardError(
            f"model.max_length must be at least {prepared.max_length}, the length of the longest text, "
            f"got {model.max_length}; increase it or lower --data.max-tokens"
        )
    for score in sorted(set(find_scores_without_gradient(model).values())):
        reporter.info(f"note: score {score} gives query and keys no gradient, so where it attends is not learned")
    for score in find_added_projections(model):
        reporter.info(f"note: score {score} requires query and keys of one width, so the keys get a projection W^K")
    prepared.initialize(model)
    set_kernel_widths(model, prepared.first_batch)
    if base is not None:
        load_base_parameters(model, base)
    return model


def load_base_parameters(model: Model, base: Run) -> None:
    """Load the parameters of another run into the model."""
    base_parameters, model_state = base.read_parameters(), model.state_dict()
    for name, tensor in model_state.items():
        if name not in base_parameters or base_parameters[name].shape != tensor.shape:
            base_shape = tuple(base_parameters[name].shape) if name in base_parameters else "none"
            raise RegardError(
                f"{base.path}: --from requires the same model; {name}: expected shape {tuple(tensor.shape)}, "
                f"got {base_shape}"
            )
    model.load_state_dict({name: base_parameters[name] for name in model_state})


def record_start(run: Run, prepared: Prepared, model: Model, base: Run | None, reporter: Reporter) -> None:
    """Write recipe, tokenizers and card of a new run, and log what will be trained."""
    parameters = sum(p.numel() for p in model.parameters())
    recipe = prepared.recipe
    if not run.card_file.exists():
        write_text(run.tokenizer_file, prepared.tokenizers.to_json())
        run.write_recipe(recipe.to_table())
        run.write_card(
            {
                "task": MODELS[recipe.model["name"]].task,
                "model": recipe.model["name"],
                "parameters": parameters,
                "vocabulary": prepared.tokenizers.vocabulary,
                "data": prepared.data,
                "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                **({"from": str(base.path)} if base else {}),
            }
        )
    sizes = ", ".join(f"{name} {format_value(value)}" for name, value in recipe.model.items() if name != "name")
    reporter.info(f"model: {recipe.model['name']}, {parameters:,} parameters ({sizes})")
    training = recipe.training
    reporter.info(
        f"training: {training.steps:,} steps of up to {training.batch_tokens:,} {prepared.batch_unit}, "
        f"learning rate {training.learning_rate:g}, validation every {training.validate_every:,} steps, "
        f"best model by {training.metric}"
    )
    reporter.info(f"batches: {prepared.summary}")


def train_model(run: Run, prepared: Prepared, model: Model, device: str, reporter: Reporter) -> Counters:
    """Train the model and return the final counters."""
    training = prepared.recipe.training
    assert training.label_smoothing is not None
    engine = build_engine(prepared.step(model, training.label_smoothing), training, device)
    return Trainer(engine, prepared.batches, prepared.validate, training, run, reporter).train()


@contextmanager
def use_deterministic_algorithms(enabled: bool) -> Iterator[None]:
    """Use deterministic algorithms, if enabled, inside the context."""
    previous = torch.are_deterministic_algorithms_enabled()
    if enabled:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required by cuBLAS
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(previous)
