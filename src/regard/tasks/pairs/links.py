"""Attention on given pairs, the units that links connect, and gold links, for `regard evaluate` and `regard align`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.alignment import AttentionExample, GoldLinks
    from regard.data.example import Example
    from regard.tasks.pairs.prediction import Prediction
    from regard.tasks.pairs.predictor import PairPredictor
    from regard.text import Tokenizer
    from regard.text.units import TextUnit

LinkUnit = Literal["word", "token"]


class LinkUnits(NamedTuple):
    """What links connect: the words or the tokens of each side."""

    source: LinkUnit = "word"
    target: LinkUnit = "word"

    def swap(self) -> LinkUnits:
        """Return the units of the reverse direction."""
        return LinkUnits(self.target, self.source)

    def describe(self, predictor: PairPredictor) -> str:
        """Describe the units with the kind of tokens: source characters and target words."""
        tokenizers = predictor.tokenizers
        source, target = name_unit(self.source, tokenizers.source), name_unit(self.target, tokenizers.target)
        return f"source {source} and target {target}"


WORDS = LinkUnits()


def name_unit(unit: LinkUnit, tokenizer: Tokenizer) -> str:
    """Return the plural name of a unit; tokens that are characters or bytes are called so."""
    return tokenizer.kind if unit == "token" and tokenizer.kind in ("characters", "bytes") else f"{unit}s"


def choose_link_units(unit: LinkUnit | None, predictor: PairPredictor, predictions: Sequence[Prediction]) -> LinkUnits:
    """Return the given unit for both sides; by default tokens for a side that is mostly single words, else words."""
    if unit is not None:
        return LinkUnits(unit, unit)
    tokenizers = predictor.tokenizers
    return LinkUnits(
        choose_link_unit(tokenizers.source, [prediction.source_words for prediction in predictions]),
        choose_link_unit(tokenizers.target, [prediction.target_words for prediction in predictions]),
    )


def choose_link_unit(tokenizer: Tokenizer, words_of_tokens: Sequence[Sequence[int | None]]) -> LinkUnit:
    """Return `token` if most texts are a single word of several possible tokens, otherwise `word`.

    Whole tokens in columns beside the text, such as features, do not count.
    """
    count = count_indices if tokenizer.description == tokenizer.kind else count_spelled_words
    counts = [count(words) for words in words_of_tokens]
    is_single = sum(count == 1 for count in counts) > sum(count > 1 for count in counts)
    return "token" if is_single and tokenizer.kind != "words" else "word"


def count_indices(words: Sequence[int | None]) -> int:
    """Return the number of different words of some tokens."""
    return len({word for word in words if word is not None})


def count_spelled_words(words: Sequence[int | None]) -> int:
    """Return the number of different words of several tokens, at least 1."""
    tokens = Counter(word for word in words if word is not None)
    return max(1, sum(count > 1 for count in tokens.values()))


def to_attended(predictor: PairPredictor, prediction: Prediction, units: LinkUnits = WORDS) -> AttentionExample:
    """Return the weights of a prediction and the word of each token; with tokens as units, each is its own word.

    Tokens that are parts of a character belong to that character.
    """
    from regard.alignment import AttentionExample

    assert prediction.weights is not None
    source, target = prediction.source_words, prediction.target_words
    source_tokens, target_tokens = list_token_units(predictor, prediction)
    if units.source == "token":
        source = (*index_units(source_tokens), *[None] * (len(source) - len(prediction.pair.source)))
    if units.target == "token":
        target = (*index_units(target_tokens), *[None] * (len(target) - len(prediction.pair.target or ())))
    return AttentionExample(prediction.weights, source, target)


def list_token_units(predictor: PairPredictor, prediction: Prediction) -> tuple[Sequence[TextUnit], Sequence[TextUnit]]:
    """Return the tokens of both sides without <eos>; tokens that are parts of a character are one unit."""
    from regard.text.units import join_parts

    source, target, _ = prediction.pair
    tokenizers = predictor.tokenizers
    return (
        join_parts(tokenizers.source, prediction.source_tokens[: len(source)]),
        join_parts(tokenizers.target, prediction.target_tokens[: len(target or ())]),
    )


def index_units(units: Sequence[TextUnit]) -> list[int]:
    """Return the index of the unit of each token."""
    return [index for index, unit in enumerate(units) for _ in unit.token_indices]


def get_linked_texts(
    predictor: PairPredictor, prediction: Prediction, units: LinkUnits
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the words or tokens of both sides that link indices refer to."""
    source, target = ([unit.text for unit in side] for side in list_token_units(predictor, prediction))
    if units.source == "word":
        source = predictor.tokenizers.source.steps.prepare(prediction.source).split()
    if units.target == "word":
        target = prediction.raw_text.split()
    return source, target


def unzip_examples(examples: Sequence[Example]) -> tuple[list[str], list[str]]:
    """Return the sources and the targets of some examples."""
    return [example.source for example in examples], [example.target for example in examples]


def force_examples(model: PairPredictor, examples: Sequence[Example]) -> list[Prediction]:
    """Return given pairs as predictions of a model, with its attention."""
    return model.force(*unzip_examples(examples), return_weights=True)


def check_gold(
    path: Path, gold: Sequence[GoldLinks], attended: Sequence[AttentionExample], units: LinkUnits = WORDS
) -> None:
    """Raise a `RegardError` for a link to a word or token that does not exist."""
    for line_number, (links, attended_pair) in enumerate(zip(gold, attended, strict=True), start=1):
        for side, unit, words, word_indices in (
            ("source", units.source, attended_pair.source_words, [source for source, _ in links.possible]),
            ("target", units.target, attended_pair.target_words, [target for _, target in links.possible]),
        ):
            count = count_indices(words)
            if word_indices and max(word_indices) >= count:
                raise RegardError(
                    f"{path}, line {line_number}: {unit} {max(word_indices)} of the {side} is out of range "
                    f"({count} {unit}s, counted from 0); if the links count from 1, pass --gold-base 1"
                )


def get_shifts(shift: int | None) -> tuple[int, ...]:
    """Return the shifts to try: the given one, or all."""
    from regard.alignment import SHIFTS

    return SHIFTS if shift is None else (shift,)
