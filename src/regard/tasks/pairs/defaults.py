"""Default settings for the task pairs, chosen from the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from regard.batch import EOS, Pair
from regard.models import MODELS
from regard.models.hard_attention import HardAttention
from regard.models.transformer import TransformerConfig
from regard.tasks.pairs.settings import PairRecipe
from regard.tasks.pairs.validation import METRICS
from regard.text import Tokenizer
from regard.text.tokenizer import is_character_level
from regard.training.defaults import WIDTH_STEP, check_metric, choose_training, choose_width, count_bits, fade

SHORT = 25
"""Mean target length, in tokens, up to which exact match is a useful metric."""

SMALL = 500
"""Vocabulary size below which words are treated as symbols."""

LITTLE = 1.2e6, 3.8e6
"""Bits of targets up to which symbols get `MORE_DROPOUT`, and from which they do not."""

MUCH = 20e6, 90e6
"""Bits of targets up to which words get `MORE_DROPOUT`, and from which they do not."""

MORE_DROPOUT = 0.1

FEW = 65e3, 107e3
"""Bits of targets up to which hard attention is small and trained briefly, and from which it is not.

Up to the first are 1,000 inflected forms and 800 words of letters to phones, from the second 3,600 words.
"""

HARD_HIDDEN = 128, 256
"""The hidden width of hard attention for data of these bits."""

HARD_STEPS = 1000, 1500
"""The least number of updates of hard attention for data of these bits."""

HARD_MEMORY = 4 * 2**30
"""Bytes that a batch of hard attention takes at most, by default."""

HARD_TENSORS = 6
"""Number of float32 tensors that a training step of hard attention holds at most, measured with several shapes.

Each has a row for each pair of a source and a target token, as wide as the hidden state, the vocabulary and the source
together.
"""


@dataclass(frozen=True)
class PairFacts:
    """Statistics of the encoded training data."""

    pairs: int
    source_tokens: int
    target_tokens: int
    target_bits: float  # tokens times their entropy
    symbols: bool  # targets are letters, phones or digits, not running text
    words: bool  # targets are words or subwords, not single letters
    on_gpu: bool
    longest_source: int = 1  # in tokens
    longest_target: int = 1
    target_vocab_size: int = 1

    @staticmethod
    def of(pairs: Sequence[Pair], tokenizer: Tokenizer, *, on_gpu: bool) -> PairFacts:
        """Count pairs and tokens."""
        source = sum(len(pair.source) + 1 for pair in pairs)
        targets = Counter(token for pair in pairs for token in (*(pair.target or ()), EOS))
        total = targets.total()
        return PairFacts(
            len(pairs),
            source,
            total,
            count_bits(list(targets.values()), total),
            symbols=is_symbols(tokenizer),
            words=not is_character_level(tokenizer),
            on_gpu=on_gpu,
            longest_source=max(len(pair.source) + 1 for pair in pairs),
            longest_target=max(len(pair.target or ()) + 1 for pair in pairs),
            target_vocab_size=tokenizer.size,
        )

    @property
    def tokens(self) -> int:
        """The number of tokens on the longer side."""
        return max(self.source_tokens, self.target_tokens)


def is_symbols(tokenizer: Tokenizer) -> bool:
    """Return whether a side is letters, phones or digits rather than running text."""
    return tokenizer.kind == "characters" or (tokenizer.kind == "words" and tokenizer.size < SMALL)


def choose_pair_settings(recipe: PairRecipe, facts: PairFacts) -> PairRecipe:
    """Return the recipe with every open setting filled in."""
    check_metric(recipe.training, (*METRICS, "loss"))
    name = recipe.model["name"]
    recurrent, hard = name != "transformer", is_hard(name)
    model = {**choose_pair_model_sizes(name, facts), **recipe.model}
    batch_tokens = min(max(facts.tokens // 60, 1024), 8192 if facts.on_gpu else 4096)
    least_steps = round(grow(*HARD_STEPS, facts)) if hard else 1500
    training = choose_training(
        recipe.training,
        facts.tokens,
        batch_tokens=min(batch_tokens, limit_hard_batch(model, facts)) if hard else batch_tokens,
        steps=lambda epoch: min(max(40 * epoch, least_steps), 20_000),
        learning_rate=2e-3 if recurrent else 1e-3,
        warmup_steps=100 if recurrent else 400,
        label_smoothing=0.1,
        metric=choose_metric(facts),
        precision=choose_precision(recurrent, facts),
    )
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


def choose_pair_model_sizes(name: str, facts: PairFacts) -> dict[str, object]:
    """Return model sizes that fit the amount of data, with more dropout for little."""
    if is_hard(name):
        hidden = WIDTH_STEP * round(grow(*HARD_HIDDEN, facts) / WIDTH_STEP)
        return {"hidden": hidden, "embedding": 128, "layers": 2, "dropout": choose_dropout(0.3, LITTLE, facts)}
    width = choose_width(facts.target_bits)
    if name == "transformer":
        few_symbols = facts.symbols and facts.target_bits < LITTLE[1]
        dropout = choose_dropout(0.2, LITTLE, facts) if few_symbols else choose_dropout(0.1, MUCH, facts)
        return {"width": width, "dropout": dropout}
    sizes: dict[str, object] = {"hidden": width, "embedding": width}
    return {**sizes, "dropout": choose_dropout(0.2, MUCH, facts)} if facts.words else sizes


def is_hard(name: str) -> bool:
    """Return whether a preset has hard attention."""
    return MODELS[name].model is HardAttention


def grow(least: float, most: float, facts: PairFacts) -> float:
    """Return a setting of hard attention that grows with the logarithm of the bits, within the bounds `FEW`."""
    return most - (most - least) * fade(facts.target_bits, *FEW)


def limit_hard_batch(model: Mapping[str, Any], facts: PairFacts) -> int:
    """Return the number of tokens per side up to which no batch of hard attention takes more than `HARD_MEMORY`.

    A batch of n tokens per side has at most n times the shorter of its two lengths pairs of source and target tokens.
    """
    widths = int(model["hidden"]) + facts.target_vocab_size + facts.longest_source
    pair_bytes = 4 * HARD_TENSORS * widths
    return max(1, HARD_MEMORY // (pair_bytes * min(facts.longest_source, facts.longest_target)))


def choose_dropout(least: float, bounds: tuple[float, float], facts: PairFacts) -> float:
    """Return `MORE_DROPOUT` than the least up to the first bound, falling to the least at the second."""
    return round(least + MORE_DROPOUT * fade(facts.target_bits, *bounds), 2)


def has_even_heads(model: Mapping[str, Any]) -> bool:
    """Return whether the heads of a Transformer have an even width, which rotary positions require."""
    width = model.get("head_width") or model["width"] // model.get("heads", TransformerConfig.heads)
    return width % 2 == 0
