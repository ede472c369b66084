"""Settings that suit pairs, for all that the user left open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from regard.batch import Pair
from regard.recipe import fitting_models
from regard.tasks.pairs import PairTask
from regard.tasks.pairs.settings import PairRecipe
from regard.tasks.pairs.validation import METRICS
from regard.text import Tokenizer, Tokenizers
from regard.text.tokenizer import is_spelt
from regard.training.defaults import check_metric, choose_training

LARGE = 20_000
"""From so many pairs of running text on, a Transformer is the default."""

SHORT = 25
"""Tokens of a target, on average, that can be right as a whole."""

SMALL = 500
"""A vocabulary of fewer words is one of symbols."""


@dataclass(frozen=True)
class Facts:
    """What is known of the training data once it is encoded."""

    pairs: int
    source_tokens: int
    target_tokens: int
    symbols: bool  # targets are letters, phones, digits and the like, not running text
    words: bool  # targets are words or pieces of them, not single letters
    on_gpu: bool

    @staticmethod
    def of(pairs: Sequence[Pair], tokenizer: Tokenizer, *, on_gpu: bool) -> Facts:
        """Count."""
        source = sum(len(pair.source) + 1 for pair in pairs)
        target = sum(len(pair.target or ()) + 1 for pair in pairs)
        return Facts(len(pairs), source, target, is_symbols(tokenizer), not is_spelt(tokenizer), on_gpu)

    @property
    def tokens(self) -> int:
        """Of the longer side."""
        return max(self.source_tokens, self.target_tokens)


def is_symbols(tokenizer: Tokenizer) -> bool:
    """Whether a side is letters, phones, digits and the like, not running text."""
    return tokenizer.kind == "characters" or (tokenizer.kind == "words" and tokenizer.size < SMALL)


def choose_model(pairs: int, tokenizers: Tokenizers, settings: Mapping[str, Any] | None = None) -> str:
    """The preset for data of a size: attention over a recurrent encoder needs less of it than a Transformer.

    If it does not have the settings that are given, the other.
    """
    wanted = "transformer" if pairs >= LARGE and not is_symbols(tokenizers.target) else "bahdanau"
    fitting = fitting_models(settings or {}, "recipe", PairTask.presets)
    return wanted if wanted in fitting else fitting[0]


def choose_settings(recipe: PairRecipe, facts: Facts) -> PairRecipe:
    """The recipe with nothing left open."""
    check_metric(recipe.training, (*METRICS, "loss"))
    recurrent = recipe.model["name"] != "transformer"
    training = choose_training(
        recipe.training,
        facts.tokens,
        tokens=min(max(facts.tokens // 60, 1024), 8192 if facts.on_gpu else 4096),
        steps=lambda epoch: min(max(40 * epoch, 1500), 20_000),
        rate=2e-3 if recurrent else 1e-3,
        warmup=100 if recurrent else 400,
        smoothing=0.1,
        metric=best_metric(facts),
        precision=best_precision(recurrent, facts),
    )
    return replace(recipe, training=training, model={**model_defaults(recurrent, facts), **recipe.model})


def best_metric(facts: Facts) -> Literal["exact", "chrf", "bleu"]:
    """What tells good parameters from better ones: long targets are hardly ever right to the last letter."""
    if not facts.symbols:
        return "bleu"
    return "exact" if facts.target_tokens <= SHORT * facts.pairs else "chrf"


def best_precision(recurrent: bool, facts: Facts) -> Literal["float32", "bfloat16"]:
    """bfloat16 where it is faster: the steps of a recurrent model are too small for that."""
    return "bfloat16" if facts.on_gpu and not recurrent else "float32"


def model_defaults(recurrent: bool, facts: Facts) -> dict[str, object]:
    """Sizes of a model for data of a size; where there are few words, with more dropout."""
    width = 128 if facts.target_tokens < 400_000 else 256 if facts.target_tokens < 10_000_000 else 512
    sizes: dict[str, object] = {"hidden": width, "embedding": width} if recurrent else {"width": width}
    few = facts.words and facts.target_tokens < 10_000_000
    return {**sizes, "dropout": 0.3 if recurrent else 0.2} if few else sizes
