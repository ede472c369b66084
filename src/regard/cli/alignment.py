"""What `regard evaluate` and `regard align` share: the attention of a run as links between words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.alignment import Attended, Gold, Place
    from regard.data.example import Example
    from regard.metrics import AlignmentScore
    from regard.predictor import Prediction, Predictor


@dataclass(frozen=True)
class Found:
    """How well one attention of a model agrees with gold links."""

    place: Place
    score: AlignmentScore
    searched: bool

    def __str__(self) -> str:
        how = "the best on these gold links" if self.searched else "as asked for"
        return f"{self.score} attention {self.place}, {how}"

    def to_json(self) -> dict[str, object]:
        """Ready for `json.dumps`."""
        return {"attention": self.place._asdict(), "searched": self.searched, **asdict(self.score)}


def attention_place(name: str | None, shift: int) -> Place | None:
    """The attention that was asked for, if one was."""
    from regard.alignment import parse_place

    return None if name is None else parse_place(name, shift)


def check_gold(path: Path | None, base: int, examples: Sequence[Example]) -> list[Gold]:
    """Gold links from a file, or those that the examples have; one for each example."""
    from regard.alignment import Gold, read_pharaoh

    if path is None:
        return [Gold(example.links or frozenset()) for example in examples]
    gold = read_pharaoh(path, base)
    if len(gold) != len(examples):
        raise RegardError(f"{path} has {len(gold)} lines, there are {len(examples)} pairs; line n must link pair n")
    return gold


def attended_of(prediction: Prediction) -> Attended:
    """The weights of a prediction and the words of its tokens."""
    from regard.alignment import Attended

    assert prediction.weights is not None
    return Attended(prediction.weights, prediction.source_words, prediction.target_words)


def aligned(model: Predictor, examples: Sequence[Example], gold: Sequence[Gold], place: Place | None) -> Found:
    """Score the attention of given targets against gold links."""
    from regard.alignment import align
    from regard.metrics import alignment_error, search_head

    forced = model.force([e.source for e in examples], [e.target for e in examples], return_weights=True)
    attended = [attended_of(each) for each in forced]
    if place is None:
        best = search_head(attended, gold)
        return Found(best.place, best.score, searched=True)
    return Found(place, alignment_error([align(each, place) for each in attended], gold), searched=False)
