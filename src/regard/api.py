"""What `import regard` offers besides attention itself: load, train, look and explain, over `TASKS`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from regard.errors import RegardError, unknown_name
from regard.explaining.explanation import Explanation
from regard.explaining.methods import explained
from regard.looking.hugging_face import look_at_transformer, options_for
from regard.looking.options import check_text
from regard.run import Run
from regard.tasks import TASKS, task_of, to_recipe
from regard.tasks.loading import load
from regard.tasks.options import names_of
from regard.tasks.predictor import Predictor
from regard.training.going_on import check_data, check_settings, going_on_from, started_from, tuned
from regard.training.loop import Counters
from regard.training.talk import Talk
from regard.training.train import begin, deterministic, fit, left_as_it_was, new_model
from regard.views.attention_map import AttentionMap

__all__ = ["explain", "load", "look", "train"]

Options = TypeVar("Options")


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


def look(model: Any, *given: Any, **options: Any) -> AttentionMap:
    """Where a model looks while it reads a text, and while it writes its answer to it.

    Args:
        model: What `regard.load` gave; or a model of Hugging Face Transformers, its tokenizer after it.
        given: The tokenizer, where there is one, and the text.
        options: `words`: merge tokens that are parts of words to words (True unless set); characters and special
            tokens stay as they are. `kind`: which attention, where a model has several: "cross" from target to source
            (unless set), "encoder" within the source, "decoder" within the target; of a classifier "pooling" (unless
            set), or "self" between words. `top`: keep only so many weights of each row; all unless set, or the text
            has more than 1,000 tokens. Of a model that answers a source, `target`: the answer to look at, the one it
            gives unless set; `longest`: of the answer that it gives, so many tokens at the most. Of a classifier of
            pairs, `second`: the second text; of one of dialogues, `context`: the texts before, the oldest first.

    Example:
        >>> regard.look(regard.load("runs/dates"), "vendredi 3 mars 2017").picture("look.png")
        >>> regard.look(hf_model, hf_tokenizer, "The animal did not cross it").html("look.html")
    """
    runs = isinstance(model, Predictor)
    if not runs and not isinstance(model, nn.Module):
        raise RegardError(f"look: found {type(model).__name__}; give what regard.load gives, or a Transformers model")
    wanted = "a text" if runs else "a tokenizer and a text"
    if len(given) != (1 if runs else 2) or not isinstance(given[-1], str):
        found = ", ".join(type(each).__name__ for each in given) or "nothing"
        raise RegardError(f"look: found {found} after the model; {wanted} is needed")
    check_text(given[-1])
    if isinstance(model, Predictor):
        return model.look(given[0], options_of("look", model.task.options["look"], options, model.name))
    return look_at_transformer(
        model, given[0], given[1], options_of("look", options_for(model), options, type(model).__name__)
    )


def explain(predictor: Any, text: str | Sequence[str], **options: Any) -> Explanation:
    """How much each word of a text mattered for what a model says of it, by several methods.

    Args:
        predictor: What `regard.load` gave.
        text: A text; for a tagger also its words.
        options: For a model of pairs, `target`: the target to explain, the one it predicts unless set. `word`: which
            word to explain, counted from 0: of a target (all of it unless set), of a text that a language model reads
            (its last), or of one that a tagger tags (the first with another tag than O). For a classifier or tagger,
            `label`: the label or tag to explain, the one it gives unless set. For a classifier of pairs, `second`:
            the second text; of dialogues, `context`: the texts before, the oldest first; both stay as they are.

    Example:
        >>> explanation = regard.explain(regard.load("runs/questions"), "Who wrote Emma ?")
        >>> explanation.values["attention"], explanation.correlations
    """
    if not isinstance(predictor, Predictor):
        raise RegardError(f"explain: found {type(predictor).__name__}; give what regard.load gives")
    return explained(
        predictor.explain(text, options_of("explain", predictor.task.options["explain"], options, predictor.name))
    )


def options_of(what: str, kind: type[Options], given: Mapping[str, Any], model: str) -> Options:
    """Options as a dataclass; a name that it has not is refused, and None says nothing."""
    known, others = names_of(kind), set[str]().union(*(names_of(task.options[what]) for task in TASKS.values()))
    told = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    told = {name: value for name, value in told.items() if value is not None}
    for name in told:
        if name not in known | others:
            raise unknown_name(f"{what}: options", name, sorted(known))
        if name not in known:
            raise RegardError(f"{what}: {name} is for other models than {model}; leave it out")
    return kind(**told)
