"""Default settings for the task pairs, chosen from the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from regard.batch import Pair
from regard.data.example import Example
from regard.errors import RegardError
from regard.models import MODELS
from regard.models.transformer import TransformerConfig
from regard.recipe import find_compatible_models
from regard.settings import get_fields
from regard.tasks.pairs import PairTask
from regard.tasks.pairs.settings import PairRecipe
from regard.tasks.pairs.validation import METRICS
from regard.text import Tokenizer, TokenizerPair
from regard.text.column_tokenizer import ColumnTokenizer
from regard.text.copying import CopyTable, count_copied
from regard.text.tokenizer import is_character_level
from regard.training.defaults import check_metric, choose_training

LARGE = 20_000
"""Number of pairs of running text from which a Transformer is the default."""

SHORT = 25
"""Mean target length, in tokens, up to which exact match is a useful metric."""

COPIED = 0.5
"""Share of target tokens that occur in their source, in the same order, from which a model copies by default."""

COPY_SAMPLE = 1000
"""Number of pairs in which that share is measured."""

SMALL = 500
"""Vocabulary size below which words are treated as symbols."""


@dataclass(frozen=True)
class PairFacts:
    """Statistics of the encoded training data."""

    pairs: int
    source_tokens: int
    target_tokens: int
    symbols: bool  # targets are letters, phones or digits, not running text
    words: bool  # targets are words or subwords, not single letters
    on_gpu: bool

    @staticmethod
    def of(pairs: Sequence[Pair], tokenizer: Tokenizer, *, on_gpu: bool) -> PairFacts:
        """Count pairs and tokens."""
        source = sum(len(pair.source) + 1 for pair in pairs)
        target = sum(len(pair.target or ()) + 1 for pair in pairs)
        return PairFacts(len(pairs), source, target, is_symbols(tokenizer), not is_character_level(tokenizer), on_gpu)

    @property
    def tokens(self) -> int:
        """The number of tokens on the longer side."""
        return max(self.source_tokens, self.target_tokens)


def is_symbols(tokenizer: Tokenizer) -> bool:
    """Return whether a side is letters, phones or digits rather than running text."""
    return tokenizer.kind == "characters" or (tokenizer.kind == "words" and tokenizer.size < SMALL)


def choose_pair_model(pairs: int, tokenizers: TokenizerPair, settings: Mapping[str, Any] | None = None) -> str:
    """Return the default preset: a recurrent model with attention needs less data than a Transformer.

    If it lacks one of the given settings, return the first preset that has all of them.
    """
    preferred = "transformer" if pairs >= LARGE and not is_symbols(tokenizers.target) else "bahdanau"
    compatible = find_compatible_models(settings or {}, "recipe", PairTask.presets)
    return preferred if preferred in compatible else compatible[0]


def supports_copy(model: Mapping[str, Any]) -> bool:
    """Return whether a model has attention that it can copy by."""
    fields = get_fields(MODELS[model["name"]].config)
    settings = {**MODELS[model["name"]].settings, **model}
    return "copy" in fields and "none" not in (settings.get("attention"), settings.get("normalizer"))


def choose_copy(
    model: Mapping[str, Any], examples: Sequence[Example], tokenizers: TokenizerPair, *, is_new: bool
) -> tuple[bool, str]:
    """Return whether a model copies, and the reason; one that continues a run without this setting does not."""
    setting = model.get("copy", "auto")
    if isinstance(tokenizers.target, ColumnTokenizer):
        if setting is True:
            raise RegardError("model.copy requires a target of one column")
        return False, "no: the target has several columns"
    if setting != "auto" or not is_new:
        return setting is True, f"{'yes' if setting is True else 'no'}: as configured"
    table = CopyTable(tokenizers)
    sample = [table.encode_pair(e.source, e.target) for e in examples[:: max(1, len(examples) // COPY_SAMPLE)]]
    copied = sum(count_copied(pair.copy_ids or (), pair.target or ()) for pair in sample)
    share = copied / max(1, sum(len(pair.target or ()) for pair in sample))
    answer, other = ("yes", "no") if share >= COPIED else ("no", "yes")
    return share >= COPIED, (
        f"{answer}: {share:.0%} of the target tokens occur in their source, in the same order; "
        f"--copy {other} to change it"
    )


def choose_pair_settings(recipe: PairRecipe, facts: PairFacts) -> PairRecipe:
    """Return the recipe with every open setting filled in."""
    check_metric(recipe.training, (*METRICS, "loss"))
    recurrent = recipe.model["name"] != "transformer"
    training = choose_training(
        recipe.training,
        facts.tokens,
        batch_tokens=min(max(facts.tokens // 60, 1024), 8192 if facts.on_gpu else 4096),
        steps=lambda epoch: min(max(40 * epoch, 1500), 20_000),
        learning_rate=2e-3 if recurrent else 1e-3,
        warmup_steps=100 if recurrent else 400,
        label_smoothing=0.1,
        metric=choose_metric(facts),
        precision=choose_precision(recurrent, facts),
    )
    model = {**choose_pair_model_sizes(recurrent, facts), **recipe.model}
    if not recurrent and facts.symbols and has_even_heads(model):
        model.setdefault("positions", "rotary")
    return replace(recipe, training=training, model=model)


def choose_metric(facts: PairFacts) -> Literal["exact", "chrf", "bleu"]:
    """Return the default metric; long targets rarely match exactly, so exact match cannot rank models there."""
    if not facts.symbols:
        return "bleu"
    return "exact" if facts.target_tokens <= SHORT * facts.pairs else "chrf"


def choose_precision(recurrent: bool, facts: PairFacts) -> Literal["float32", "bfloat16"]:
    """Return bfloat16 where it is faster; the steps of a recurrent model are too small to benefit."""
    return "bfloat16" if facts.on_gpu and not recurrent else "float32"


def choose_pair_model_sizes(recurrent: bool, facts: PairFacts) -> dict[str, object]:
    """Return model sizes that fit the amount of data, with more dropout for little text."""
    width = 128 if facts.target_tokens < 400_000 else 256 if facts.target_tokens < 10_000_000 else 512
    sizes: dict[str, object] = {"hidden": width, "embedding": width} if recurrent else {"width": width}
    if not recurrent and facts.symbols and width == 128:
        return {**sizes, "dropout": 0.3}
    few = facts.words and facts.target_tokens < 10_000_000
    return {**sizes, "dropout": 0.3 if recurrent else 0.2} if few else sizes


def has_even_heads(model: Mapping[str, Any]) -> bool:
    """Return whether the heads of a Transformer have an even width, which rotary positions require."""
    width = model.get("head_width") or model["width"] // model.get("heads", TransformerConfig.heads)
    return width % 2 == 0
