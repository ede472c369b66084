"""Built-in corpora as data of a task: which corpora it has, training data, and new examples to evaluate on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from regard.data.corpora import CORPORA, generate_built_in, stream_examples
from regard.data.corpora.base import get_input
from regard.errors import RegardError
from regard.recipe import Recipe, get_model_fields
from regard.tasks.settings import DataSettings, get_split_seed
from regard.training.defaults import fill_defaults

COUNT = 1000
"""Number of new examples to evaluate on."""

MAX_IDLE = 2000
"""Number of samples in a row without a new example after which a corpus counts as exhausted."""

MAX_VALIDATION = 1000
"""Maximum number of examples to generate for validation."""

AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)


def list_corpora(task: str) -> list[str]:
    """Return the names of the built-in corpora of a task."""
    return [name for name, corpus in CORPORA.items() if corpus.task == task]


def find_corpus_task(data: Mapping[str, Any]) -> str | None:
    """Return the task of the built-in corpus that a [data] section, not yet checked, names as training data."""
    name = data.get("train")
    return CORPORA[name].task if isinstance(name, str) and name in CORPORA else None


def is_built_in(name: str | None, task: str) -> bool:
    """Return whether a name is a built-in corpus of a task.

    Raises:
        RegardError: It is a built-in corpus of another task.
    """
    if name not in CORPORA:
        return False
    if CORPORA[name].task != task:
        raise RegardError(
            f"data: {name} is a built-in corpus for the task {CORPORA[name].task}, not {task}; "
            f"choose from {', '.join(list_corpora(task))}"
        )
    return True


def check_corpus_settings(data: DataSettings, task: str) -> None:
    """Raise a `RegardError` for a built-in corpus of another task, or as validation data, or settings without one."""
    if not is_built_in(data.train, task) and data.corpus:
        raise RegardError(f"data: [corpus] requires a built-in corpus, got {data.train}")
    if data.validation in CORPORA:
        raise RegardError(f"data: --validation must be a file, got the built-in corpus {data.validation}")


def choose_corpus_settings(recipe: AnyRecipe) -> AnyRecipe:
    """Return the recipe with the settings that suit its built-in corpus, where it leaves them open.

    A recipe that names another model, or has a setting that the model of the corpus lacks, is not changed.
    """
    corpus = CORPORA.get(recipe.data.train)
    if corpus is None:
        return recipe
    if name := corpus.model.get("name"):
        fields = get_model_fields(name)
        if recipe.model.get("name", name) != name or any(key not in fields for key in recipe.model if key != "name"):
            return recipe
    changed: Any = recipe  # a dataclass of its task
    training = fill_defaults(recipe.training, **corpus.training)
    return replace(changed, model={**corpus.model, **recipe.model}, training=training)


def generate_split(data: DataSettings, seed: int) -> tuple[list[Any], list[Any]]:
    """Generate the training and validation examples of a built-in corpus; no validation examples if a file is given."""
    assert data.train is not None
    wanted = max(1, min(MAX_VALIDATION, round(data.corpus_size * data.validation_share)))
    valid = 0 if data.has_validation else wanted
    return generate_built_in(data.train, train=data.corpus_size, valid=valid, seed=seed, **data.corpus)


def describe_origin(recipe: Recipe) -> str:
    """Return the origin of the training data, for logs and the card of a run."""
    name = str(recipe.data.train)
    return f"the built-in corpus {name}, seed {get_split_seed(recipe)}" if name in CORPORA else name


def sample_new_examples(recipe: Recipe, name: str, *, seed: int | None = None, count: int | None = None) -> list[Any]:
    """Generate examples from the validation split of a built-in corpus, to evaluate a run on.

    Args:
        recipe: The recipe of the run; if it was trained on this corpus, its corpus settings are used.
        name: The corpus.
        seed: Seed of the examples; by default that of the run plus 1.
        count: Number of examples, fewer if the corpus has not so many; 1000 by default.
    """
    options = recipe.data.corpus if name == recipe.data.train else {}
    examples: dict[str, Any] = {}
    idle = 0
    for example in stream_examples(
        name, split="valid", seed=get_split_seed(recipe) + 1 if seed is None else seed, **options
    ):
        text = get_input(example)
        idle = idle + 1 if text in examples else 0
        examples.setdefault(text, example)
        if len(examples) == (count or COUNT) or idle > MAX_IDLE:
            break
    return list(examples.values())


def describe_new_examples(name: str, examples: Sequence[Any]) -> str:
    """Return a description of new examples of a built-in corpus, for `regard compare`."""
    return f"{len(examples):,} new examples of the built-in corpus {name}"
