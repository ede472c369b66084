"""Choose the model of the task pairs and whether it copies, from the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from regard.batch import UNKNOWN, Pair
from regard.data.example import Example
from regard.data.monotonicity import measure_monotonicity
from regard.errors import RegardError
from regard.models import MODELS
from regard.recipe import find_compatible_models
from regard.settings import get_fields
from regard.tasks.pairs import PairTask
from regard.tasks.pairs.defaults import SHORT, SMALL, is_symbols
from regard.text import TokenizerPair
from regard.text.column_tokenizer import ColumnTokenizer
from regard.text.copying import CopyTable, count_copied

LARGE = 20_000
"""Number of pairs of running text from which a Transformer is the default."""

MONOTONIC = 0.7
"""Share of steps that do not move back in the source from which hard monotonic attention is the default."""

COPIED = 0.5
"""Share of target tokens that can be copied in order, beyond chance, from which a model copies by default."""

UNKNOWN_WORDS = 0.05
"""Share of unknown words in new targets from which a model copies, if at least `COPIED` of them are in their source."""

SAMPLE = 1000
"""Number of pairs in which these shares are measured."""


class UnknownWords(NamedTuple):
    """The words of new targets that the vocabulary lacks: their share of all words, and how many are in the source."""

    share: float
    copied: float

    @property
    def need_copying(self) -> bool:
        """Whether there are many, and a model that copies could write most of them."""
        return self.share >= UNKNOWN_WORDS and self.copied >= COPIED


def choose_pair_model(
    pairs: Sequence[Pair],
    tokenizers: TokenizerPair,
    settings: Mapping[str, Any] | None = None,
    *,
    must_copy: bool = False,
) -> tuple[str, str | None]:
    """Return the default preset and, unless it depends on the size of the data alone, the reason.

    A recurrent model with attention needs less data than a Transformer, and letters to phones or inflected forms are
    learned best with one source position for each target token, in order. That takes memory for every target token at
    every source position, so many different target characters, such as those of Chinese, are not for it. If the preset
    lacks one of the given settings, or cannot copy and must, return the first preset that fits.
    """
    compatible = find_compatible_models(settings or {}, "recipe", PairTask.presets)
    preferred, reason = "bahdanau", None
    if not is_symbols(tokenizers.target):
        preferred = "transformer" if len(pairs) >= LARGE else preferred
    elif not must_copy and "hard-monotonic" in compatible and tokenizers.target.size < SMALL and has_short_sides(pairs):
        share = measure_monotonicity([(pair.source, pair.target or ()) for pair in take_sample(pairs)])
        if share >= MONOTONIC:
            preferred = "hard-monotonic"
            reason = (
                f"{share:.0%} of the steps of a target do not move back in its source; --model bahdanau to change it"
            )
    return (preferred, reason) if preferred in compatible else (compatible[0], None)


def has_short_sides(pairs: Sequence[Pair]) -> bool:
    """Return whether both sides are short on average: hard attention needs memory for every pair of tokens."""
    return all(
        sum(len(pair[side] or ()) for pair in pairs) <= limit * len(pairs)
        for side, limit in ((0, 2 * SHORT), (1, SHORT))
    )


def take_sample(items: Sequence[Any]) -> Sequence[Any]:
    """Return about `SAMPLE` of the items, at equal distances."""
    return items[:: max(1, len(items) // SAMPLE)]


def supports_copy(model: Mapping[str, Any]) -> bool:
    """Return whether a model has attention that it can copy by."""
    fields = get_fields(MODELS[model["name"]].config)
    settings = {**MODELS[model["name"]].settings, **model}
    return "copy" in fields and "none" not in (settings.get("attention"), settings.get("normalizer"))


def choose_copy(
    model: Mapping[str, Any],
    examples: Sequence[Example],
    tokenizers: TokenizerPair,
    *,
    unknown: UnknownWords,
    is_new: bool,
) -> tuple[bool, str]:
    """Return whether a model copies, and the reason; one that continues a run without this setting does not."""
    setting = model.get("copy", "auto")
    if isinstance(tokenizers.target, ColumnTokenizer):
        if setting is True:
            raise RegardError("model.copy requires a target of one column")
        return False, "no: the target has several columns"
    if setting != "auto" or not is_new:
        return setting is True, f"{'yes' if setting is True else 'no'}: as configured"
    if unknown.need_copying:
        return True, (
            f"yes: {unknown.share:.0%} of the target words of the validation data are unknown, and "
            f"{unknown.copied:.0%} of these are in their source; --copy no to change it"
        )
    share, chance = measure_copied_shares(take_sample(examples), tokenizers)
    copies = share - chance >= COPIED * (1 - chance)
    answer, other = ("yes", "no") if copies else ("no", "yes")
    return copies, (
        f"{answer}: {share:.0%} of the target tokens occur in their source in the same order, "
        f"{chance:.0%} in that of another pair; --copy {other} to change it"
    )


def measure_unknown_words(examples: Sequence[Example], tokenizers: TokenizerPair) -> UnknownWords:
    """Measure which words of new targets no vocabulary has, and which of them a model that copies could write.

    Letters are so few that hardly any is new, and subwords spell every word.
    """
    target = tokenizers.target
    if isinstance(target, ColumnTokenizer) or target.kind != "words":
        return UnknownWords(0.0, 0.0)
    table = CopyTable(tokenizers)
    pairs = [table.encode_pair(example.source, example.target) for example in take_sample(examples)]
    ids = [token for pair in pairs for token in pair.target or ()]
    copied, lost = sum(token >= target.size for token in ids), ids.count(UNKNOWN)
    return UnknownWords((copied + lost) / max(1, len(ids)), copied / max(1, copied + lost))


def measure_copied_shares(examples: Sequence[Example], tokenizers: TokenizerPair) -> tuple[float, float]:
    """Return the share of target tokens that occur, in the same order, in their source, and in that of the pair before.

    The second is the share by chance, which is high where there are few different tokens.
    """
    table = CopyTable(tokenizers)
    pairs = [table.encode_pair(example.source, example.target) for example in examples]
    total = max(1, sum(len(pair.target or ()) for pair in pairs))
    copied = sum(count_copied(pair.copy_ids or (), pair.target or ()) for pair in pairs)
    others = zip([*pairs[-1:], *pairs[:-1]], pairs, strict=True)
    by_chance = sum(count_copied(other.copy_ids or (), pair.target or ()) for other, pair in others)
    return copied / total, by_chance / total
