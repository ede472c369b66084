"""Train a prepared run: build the model, record the start, run the loop."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.attention.scores import find_scores_without_gradient
from regard.data.pair_check import pluralize
from regard.errors import RegardError
from regard.layers.source_attention import find_added_projections
from regard.memory import check_memory, count_parameter_bytes, on_meta_device
from regard.models import MODELS, Model
from regard.models.kernel_widths import set_kernel_widths
from regard.recipe import Recipe, build_model, list_large_settings, resolve_paths
from regard.run import Run
from regard.settings import format_value, to_toml
from regard.training import stop
from regard.training.engines import build_engine
from regard.training.loop import Counters, Trainer
from regard.training.prepared import Prepared
from regard.training.reporter import Reporter

PURPOSE = "parameters, gradients and optimizer"
"""What the memory of training is for, without a moving average."""


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
    """Remove the files of a run that fails before it starts; say what is kept of one that is stopped."""
    stop.training_reports = True
    try:
        yield
    except BaseException as error:
        is_new = not run.has_card()
        if is_new:
            run.discard()
        if isinstance(error, KeyboardInterrupt) and not reporter.stop_reported:
            kept = "nothing was saved" if is_new else "the run is as it was"
            reporter.info(f"stopped before the first step; {kept}")
        raise


def check_training_memory(prepared: Prepared, device: str) -> None:
    """Raise a `RegardError` if parameters, gradients and optimizer need more memory than is available."""
    recipe = prepared.recipe
    with on_meta_device():
        model = build_model(recipe, prepared.tokenizers)
    size, trainable = count_parameter_bytes(model), count_parameter_bytes(model, trainable=True)
    averages = recipe.training.ema_decay > 0
    needed = size + 3 * trainable + averages * size  # Adam keeps two values for each parameter, besides its gradient
    purpose = "parameters, gradients, optimizer and moving average" if averages else PURPOSE
    advice = f"lower {' or '.join(list_large_settings(recipe))}"
    check_memory(size if device != "cpu" else needed, "parameters" if device != "cpu" else purpose, "cpu", advice)
    if device != "cpu":
        check_memory(needed, purpose, device, advice)


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
    """Write recipe, tokenizers and card of a new run, or a changed recipe, and log what will be trained."""
    parameters = sum(p.numel() for p in model.parameters())
    recipe, threads = prepared.recipe, torch.get_num_threads()
    content = format_recipe(recipe)
    if not run.card_file.exists():
        card = {
            "task": MODELS[recipe.model["name"]].task,
            "model": recipe.model["name"],
            "parameters": parameters,
            "vocabulary": prepared.tokenizers.vocabulary,
            "data": prepared.data,
            "threads": threads,
            "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            **({"from": str(base.path.absolute())} if base else {}),
        }
        tokenizers = prepared.tokenizers.to_json().encode()
        run.write_files(card, {run.recipe_file.name: content, run.tokenizer_file.name: tokenizers})
    elif content != run.recipe_file.read_bytes():
        run.write_files(run.read_card(), {run.recipe_file.name: content})
    if (threads_at_start := run.read_card().get("threads", threads)) != threads:
        reporter.info(
            f"note: run was started with {pluralize(threads_at_start, 'thread')}, now {threads}; "
            "results may differ in the last bits"
        )
    sizes = ", ".join(f"{name} {format_value(value)}" for name, value in recipe.model.items() if name != "name")
    reporter.info(f"model: {recipe.model['name']}, {parameters:,} parameters ({sizes})")
    training = recipe.training
    reporter.info(
        f"training: {pluralize(training.steps, 'step')} of up to {training.batch_tokens:,} {prepared.batch_unit}, "
        f"learning rate {training.learning_rate:g}, validation every {pluralize(training.validate_every, 'step')}, "
        f"best model by {training.metric}"
    )
    reporter.info(f"batches: {prepared.summary}")
    reporter.info(f"threads: {threads} on {pluralize(os.cpu_count() or 1, 'core')}")


def format_recipe(recipe: Recipe) -> bytes:
    """Format a recipe as TOML, with absolute paths, so that training can resume from any working directory."""
    table = recipe.to_table()
    resolve_paths(table, Path.cwd(), [type(recipe)])
    return to_toml(table).encode()


def train_model(run: Run, prepared: Prepared, model: Model, device: str, reporter: Reporter) -> Counters:
    """Train the model and return the final counters."""
    training = prepared.recipe.training
    assert training.label_smoothing is not None
    engine = build_engine(prepared.step(model, training.label_smoothing), training, device)
    return Trainer(engine, prepared.batches, prepared.validate, training, run, reporter).train()


@contextmanager
def use_deterministic_algorithms(enabled: bool) -> Iterator[None]:
    """Use deterministic algorithms, if enabled, inside the context."""
    if not enabled or torch.are_deterministic_algorithms_enabled():
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required by cuBLAS
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
