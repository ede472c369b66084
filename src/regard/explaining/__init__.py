"""Why a model said what it said: attention beside explanations that do not ask it, and how well they agree."""

from __future__ import annotations

from collections.abc import Sequence

from regard.errors import RegardError
from regard.explaining.explanation import Explanation
from regard.explaining.methods import Subject, explained
from regard.explaining.tokens import PairSubject, TextSubject
from regard.explaining.words import LabelSubject, TagSubject
from regard.label_predictor import LabelPredictor, TagPredictor
from regard.loading import AnyPredictor
from regard.predictor import Predictor
from regard.text_predictor import TextPredictor

__all__ = ["Explanation", "explain"]

WHOSE = {
    "target": (Predictor,),
    "word": (Predictor, TextPredictor, TagPredictor),
    "label": (LabelPredictor, TagPredictor),
    "second": (LabelPredictor,),
    "context": (LabelPredictor,),
}
"""What can be told of what is explained, and what of it is told to which models."""


def explain(
    predictor: AnyPredictor,
    text: str | Sequence[str],
    *,
    target: str | None = None,
    word: int | None = None,
    label: str | None = None,
    second: str | None = None,
    context: Sequence[str] | None = None,
) -> Explanation:
    """How much each word of a text mattered for what a model says of it, by several methods.

    Args:
        predictor: What `regard.load` gave.
        text: A text; for a tagger also its words.
        target: For a model of pairs, the target to explain; the one it predicts unless told otherwise.
        word: Which word to explain, counted from 0: of a target (all of it unless told otherwise), of a text
            that a language model reads (its last), or of one that a tagger tags (the first with another tag
            than O).
        label: For a classifier or tagger, the label or tag to explain; the one it gives unless told otherwise.
        second: For a classifier of pairs, the second text; it stays as it is.
        context: For a classifier of dialogues, the texts before, the oldest first; they stay as they are.

    Example:
        >>> found = regard.explain(regard.load("runs/questions"), "Who wrote Emma ?")
        >>> found.values["attention"], found.correlations
    """
    given = {"target": target, "word": word, "label": label, "second": second, "context": context}
    for name, value in given.items():
        if value is not None and not isinstance(predictor, WHOSE[name]):
            raise RegardError(f"explain: {name} is for other models than {predictor.name}; leave it out")
    return explained(subject_of(predictor, text, target, word, label, second, context))


def subject_of(
    predictor: AnyPredictor,
    text: str | Sequence[str],
    target: str | None,
    word: int | None,
    label: str | None,
    second: str | None,
    context: Sequence[str] | None,
) -> Subject:
    """What is explained, and by what."""
    if isinstance(predictor, TagPredictor):
        return TagSubject(predictor, text, word, label)
    if not isinstance(text, str):
        raise RegardError(f"explain: found {type(text).__name__}; a text is needed")
    if isinstance(predictor, LabelPredictor):
        return LabelSubject(predictor, text, label, second, context)
    if isinstance(predictor, TextPredictor):
        return TextSubject(predictor, text, word)
    return PairSubject(predictor, text, target, word)
