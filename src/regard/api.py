"""The functions `load`, `train`, `look`, `heads` and `explain` of the `regard` package, for every task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from torch import Tensor, nn

from regard.attribution.explanation import Explanation
from regard.errors import RegardError, unknown_name
from regard.maps.audio import look_at_audio, reads_audio
from regard.maps.diffusion import look_at_generation, writes_images
from regard.maps.heads import score_transformer_heads
from regard.maps.hugging_face import get_options_type, look_at_transformer
from regard.maps.images import look_at_images, reads_images
from regard.maps.options import check_not_empty
from regard.run import Run
from regard.tasks import TASKS, find_task, to_recipe
from regard.tasks.base import Task
from regard.tasks.loading import load
from regard.tasks.options import get_field_names
from regard.tasks.predictor import Predictor
from regard.training.loop import Counters
from regard.training.prepared import Prepared
from regard.training.reporter import Reporter
from regard.training.resume import (
    apply_base_recipe,
    check_data_exists,
    check_same_data,
    check_same_settings,
    check_steps,
    find_base_run,
    resume_recipe,
)
from regard.training.stop import SignalHandler
from regard.training.train import (
    check_training_memory,
    clean_up_on_failure,
    initialize_model,
    record_start,
    resolve_epochs,
    train_model,
    use_deterministic_algorithms,
)
from regard.views.attention_map import AttentionMap
from regard.views.head_scores import HeadScores
from regard.views.image_map import ImageMap

__all__ = ["explain", "heads", "load", "look", "train"]

Options = TypeVar("Options")


def train(
    table: Mapping[str, Any],
    out: str | Path,
    *,
    device: str = "cpu",
    base: str | Path | None = None,
    quiet: bool = False,
    recipe_name: str = "recipe",
) -> Counters:
    """Train a model in the folder `out`, or resume the training there.

    Args:
        table: The recipe as plain values. Settings without a value are chosen from the data.
        out: The run folder.
        device: The device to train on.
        base: A run to fine-tune: its tokenizers, model settings and parameters are the starting point.
        quiet: Write progress only to the run's log file.
        recipe_name: The name of the recipe in error messages.

    Returns:
        The counters at the end of training, such as the number of steps.

    Raises:
        RegardError: If a setting or the data are invalid, or `out` holds a run with other settings or data.

    Example:
        >>> regard.train({"data": {"train": "dates"}, "model": {"name": "bahdanau"}}, "runs/dates")
    """
    if not isinstance(table, Mapping):
        raise RegardError(f'train: expected a recipe such as {{"data": {{"train": "pairs.tsv"}}}}, got {table!r}')
    training = table.get("training")
    if isinstance(training, Mapping) and None not in (training.get("steps"), training.get("epochs")):
        raise RegardError(f"{recipe_name}: [training] epochs cannot be combined with steps")
    run, base_run = Run(Path(out)), None if base is None else Run(Path(base))
    if base_run is not None and base_run.path.resolve() == run.path.resolve():
        raise RegardError(f"{run.path} is the run to start from; choose another --out")
    run.exists()  # raises an error for a folder of something else
    reporter = Reporter(run, quiet=quiet)
    with SignalHandler(), run.lock(), clean_up_on_failure(run, reporter):
        if run.exists():  # again, since another process may just have trained it
            for message in run.restore_files():
                reporter.info(message)
            base_run = find_base_run(run, base_run)
            task, prepared = prepare_to_resume(run, table, device, reporter, recipe_name)
        else:
            task, prepared = prepare_to_start(run, table, base_run, device, reporter, recipe_name)
        check_training_memory(prepared, device)
        model = initialize_model(prepared, base_run, reporter)
        record_start(run, prepared, model, base_run, reporter)
        with use_deterministic_algorithms(prepared.recipe.training.deterministic):
            task.pretrain(run, prepared, model, device, reporter)
            counters = train_model(run, prepared, model, device, reporter)
        task.clean_up(run)
        return counters


def prepare_to_resume(
    run: Run, table: Mapping[str, Any], device: str, reporter: Reporter, recipe_name: str
) -> tuple[Task, Prepared]:
    """Read the data of a run, and check that settings and data are those it was started with."""
    merged_table = resume_recipe(run, table, find_task(run.read_recipe()).recipe)
    task, recipe = find_task(merged_table, recipe_name), to_recipe(merged_table, recipe_name)
    check_same_settings(run, recipe)
    check_data_exists(run, recipe)
    torch.manual_seed(recipe.training.seed)
    prepared = resolve_epochs(task.prepare(recipe, run, run, device, reporter))
    check_same_data(run, prepared.data["sha256"])
    check_steps(run, prepared.recipe.training.steps)
    return task, prepared


def prepare_to_start(
    run: Run, table: Mapping[str, Any], base: Run | None, device: str, reporter: Reporter, recipe_name: str
) -> tuple[Task, Prepared]:
    """Read the data of a new run, which may start from another run."""
    merged_table = apply_base_recipe(table, base, recipe_name)
    task, recipe = find_task(merged_table, recipe_name), to_recipe(merged_table, recipe_name)
    if base is not None:
        task.check_base(recipe, base, recipe_name)
    torch.manual_seed(recipe.training.seed)
    return task, resolve_epochs(task.prepare(recipe, run, base, device, reporter))


@overload
def look(model: Any, text: str, /, **options: Any) -> AttentionMap: ...
@overload
def look(model: Any, /, *inputs: Any, **options: Any) -> AttentionMap | ImageMap: ...
def look(model: Any, /, *inputs: Any, **options: Any) -> AttentionMap | ImageMap:
    """Compute the attention map of a model for a text, images or audio.

    Args:
        model: A predictor from `regard.load`, a Hugging Face Transformers model, or a diffusers pipeline with a U-Net.
        inputs: The text; for a Transformers model, its tokenizer and the text; for one that reads images, its
            processor, the image (or a list of images, or an array of the frames of a video), and for a
            vision-language model the text; for a speech model such as Whisper, its processor, the samples, and
            optionally the text; for a diffusers pipeline, the prompt, and its own options as `options`.
        options: For every model:

            - `words`: merge subwords into words (default: True).
            - `kind`: the attention to show, by default the first that the model has: "cross" (target to source),
              "encoder" or "decoder" of a sequence-to-sequence model; "pooling" or "self" of a classifier.
            - `top`: keep only this many weights per row (default: all, unless the text has more than 1,000 tokens).

            For a sequence-to-sequence model:

            - `target`: the target to look at (default: the model's prediction).
            - `max_length`: maximum number of tokens of the prediction.

            For a classifier:

            - `second`: the second text of a pair.
            - `context`: the preceding texts of a dialogue, oldest first.

    Returns:
        The weights with their tokens, by layer and head, which can be drawn or saved.

    Raises:
        RegardError: If the model has no attention, or an option is unknown or not for this model.

    Example:
        >>> regard.look(regard.load("runs/dates"), "vendredi 3 mars 2017").save_picture("look.png")
        >>> regard.look(hf_model, hf_tokenizer, "The animal did not cross it").save_html("look.html")
    """
    if writes_images(model):
        if len(inputs) != 1 or not isinstance(inputs[0], str):
            raise RegardError(f"look: expected a prompt after {type(model).__name__}")
        return look_at_generation(model, check_not_empty(inputs[0]), options)
    is_predictor = isinstance(model, Predictor)
    if not is_predictor and not isinstance(model, nn.Module):
        raise RegardError(
            f"look: expected a model from regard.load or a Transformers model, got {type(model).__name__}"
        )
    for reads, look_at, what in ((reads_images, look_at_images, "images"), (reads_audio, look_at_audio, "audio")):
        if not is_predictor and 2 <= len(inputs) <= 3 and reads(inputs[0]):
            if options:
                raise RegardError(
                    f"look: {min(options)} is not an option of {type(model).__name__}, which reads {what}"
                )
            return look_at(model, inputs[0], inputs[1], inputs[2] if len(inputs) == 3 else None)
    expected = "a text" if is_predictor else "a tokenizer and a text"
    if len(inputs) != (1 if is_predictor else 2) or not isinstance(inputs[-1], str):
        received = ", ".join(type(value).__name__ for value in inputs) or "nothing"
        raise RegardError(f"look: expected {expected} after the model, got {received}")
    check_not_empty(inputs[-1])
    if isinstance(model, Predictor):
        return model.look(inputs[0], build_options("look", model.task.options["look"], options, model.name))
    return look_at_transformer(
        model, inputs[0], inputs[1], build_options("look", get_options_type(model), options, type(model).__name__)
    )


def heads(model: Any, text: str | Tensor, *, queries: int | None = None) -> HeadScores:
    """Measure what each attention head of a model does while it reads a text, without holding its weights.

    Args:
        model: A language model from `regard.load`, or a module that is called with token ids, such as a
            Transformers model; of an encoder-decoder model, this measures the encoder.
        text: The text, or for a module its token ids, (texts, tokens).
        queries: Measure only so many evenly spaced tokens (default: all, of more than 4,096 tokens 2,048).

    Returns:
        The entropy, the weight on the first token and on the token before, the induction and retrieval scores
        and the mean distance of each head, which can be printed, drawn or saved; `definitions` says what they are.

    Raises:
        RegardError: If the model has no self-attention over the tokens, or the text does not fit the model.

    Example:
        >>> scores = regard.heads(hf_model, hf_tokenizer(text, return_tensors="pt")["input_ids"])
        >>> print(scores.draw(sort="induction"))
        >>> scores.select("retrieval")  # (layers, heads)
    """
    if isinstance(model, Predictor):
        return model.heads(text, queries)
    if not isinstance(model, nn.Module):
        raise RegardError(f"heads: expected a language model from regard.load or a module, got {type(model).__name__}")
    if not isinstance(text, Tensor) or text.ndim != 2 or text.is_floating_point():
        raise RegardError("heads: expected token ids of shape (texts, tokens) after the model")
    return score_transformer_heads(model, text, queries)


def explain(predictor: Any, text: str | Sequence[str], **options: Any) -> Explanation:
    """Compute how much each word of a text matters for the output of a model, by several methods.

    Args:
        predictor: A predictor from `regard.load`.
        text: The text; for a tagger, also a list of words.
        options: For a sequence-to-sequence model:

            - `target`: the target to explain (default: the model's prediction).
            - `word`: index of the target word to explain, from 0 (default: the whole target).

            For a language model:

            - `word`: index of the word to explain, from 0 (default: the last word).

            For a tagger:

            - `word`: index of the word to explain, from 0 (default: the first word not tagged O).
            - `label`: the tag to explain (default: the predicted tag).

            For a classifier:

            - `label`: the label to explain (default: the predicted label).
            - `second`: the second text of a pair, which stays fixed.
            - `context`: the preceding texts of a dialogue, oldest first, which stay fixed.

    Returns:
        The values of each method for each word, and how well the methods agree.

    Raises:
        RegardError: If the text is empty, or an option is unknown or not for this model.

    Example:
        >>> explanation = regard.explain(regard.load("runs/questions"), "Who wrote Emma ?")
        >>> explanation.values["attention"], explanation.correlations
    """
    if not isinstance(predictor, Predictor):
        raise RegardError(f"explain: expected a model from regard.load, got {type(predictor).__name__}")
    return predictor.explain(text, build_options("explain", predictor.task.options["explain"], options, predictor.name))


def build_options(action: str, kind: type[Options], raw_values: Mapping[str, Any], model: str) -> Options:
    """Build the option dataclass `kind`, ignoring None; raise a `RegardError` for an unknown option."""
    known_names, other_names = (
        get_field_names(kind),
        set[str]().union(*(get_field_names(task.options[action]) for task in TASKS.values())),
    )
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in raw_values.items()}
    values = {name: value for name, value in values.items() if value is not None}
    for name in values:
        if name not in known_names | other_names:
            raise unknown_name(f"{action}: option", name, sorted(known_names))
        if name not in known_names:
            raise RegardError(f"{action}: {name} is not an option of {model}")
    return kind(**values)
