"""Tokenizers: that of the source and that of the target, in one file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import tokenizers

from regard.errors import RegardError, unknown_name
from regard.files import check_version, parse_json, reading
from regard.settings import fitting
from regard.text.choose import choose_kind
from regard.text.learn import learn_model
from regard.text.steps import NO_STEPS, TextSteps
from regard.text.tokenizer import KINDS, RESERVED, SPECIAL, Kind, Tokenizer

VERSION = 1
SHARED = 0.8  # of either side's running words (or characters), from which on both sides are one language


@dataclass(frozen=True, eq=False)
class Tokenizers:
    """The tokenizer of the source and that of the target."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        """Whether a number means the same on both sides, so that they can share embeddings; the steps may differ."""
        return self.source.model is self.target.model

    def sizes(self) -> dict[str, int]:
        """What the config of a model may learn from both; `size` is of a model that reads what it writes."""
        return {"source_size": self.source.size, "target_size": self.target.size, "size": self.target.size}

    @property
    def vocabulary(self) -> dict[str, int]:
        """How many tokens there are, as a run's card says it."""
        return {"source": self.source.size, "target": self.target.size}

    def to_json(self) -> str:
        """Both as the text of a file."""
        target = record(self.target)
        if self.joint:
            target["model"] = None
        content = {"version": VERSION, "joint": self.joint, "source": record(self.source), "target": target}
        return json.dumps(content, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Tokenizers:
        """Both from the text of a file; `where` names it in errors."""
        content = parse_json(text, where)
        check_version(content, VERSION, "tokenizers", where)
        source = tokenizer_of(content.get("source"), f"{where}: source")
        model = source.model if content.get("joint") is True else None
        return cls(source, tokenizer_of(content.get("target"), f"{where}: target", model))

    def save(self, path: str | Path) -> None:
        """Write both to a file."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Tokenizers:
        """Read what `save` has written."""
        try:
            with reading(Path(path)):
                text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise RegardError(f"{path}: is not UTF-8 from byte {error.start} on") from None
        return cls.from_json(text, str(path))


def record(tokenizer: Tokenizer) -> dict[str, Any]:
    """A tokenizer as the file holds it; the model is as Hugging Face's `tokenizers` writes it."""
    model = json.loads(tokenizer.model.to_str())
    return {"kind": tokenizer.kind, "steps": asdict(tokenizer.steps), "model": model}


def tokenizer_of(found: object, where: str, model: tokenizers.Tokenizer | None = None) -> Tokenizer:
    """A tokenizer from its record, which has no model of its own if one is given."""
    if not isinstance(found, dict):
        raise RegardError(f"{where}: there is no tokenizer")
    kind = found.get("kind")
    if kind not in KINDS:
        raise unknown_name(f"{where}: kind", kind, KINDS)
    steps = fitting(found.get("steps"), TextSteps, f"{where}: steps")
    return Tokenizer(kind, model or model_of(found.get("model"), where), steps)


def model_of(found: object, where: str) -> tokenizers.Tokenizer:
    """The model from its record."""
    try:
        model = tokenizers.Tokenizer.from_str(json.dumps(found))
    except Exception as error:  # the library raises nothing more exact
        raise RegardError(f"{where}: the model is broken: {error}") from None
    if tuple(model.id_to_token(number) for number in range(len(RESERVED))) != RESERVED:
        raise RegardError(f"{where}: the model is broken: it does not begin with {', '.join(SPECIAL.values())}")
    return model


def learn_pair(
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    kind: str = "auto",
    source_kind: str | None = None,
    target_kind: str | None = None,
    size: int | None = None,
    least_count: int = 1,
    joint: bool | Literal["auto"] = "auto",
    source_steps: TextSteps = NO_STEPS,
    target_steps: TextSteps = NO_STEPS,
) -> tuple[Tokenizers, list[str]]:
    """Learn both tokenizers of a corpus; returns them and why they are what they are, in sentences.

    Args:
        sources: The texts of the source side.
        targets: Those of the target side.
        kind: Of both sides, as in `learn`; "auto" leaves it to `choose_kind`.
        source_kind: Of the source, where it differs.
        target_kind: Of the target, where it differs.
        size: Of each vocabulary, as in `learn`.
        least_count: As in `learn`, on both sides.
        joint: Whether one vocabulary, learnt from both sides, serves both; "auto" is True if the kinds are the same
            and so are four fifths of the running words (of characters, for that kind) of either side.
        source_steps: As in `learn`.
        target_steps: As in `learn`.
    """
    first = [source_steps.apply(text) for text in sources]
    second = [target_steps.apply(text) for text in targets]
    both = [*first, *second]
    source, why_source = kind_of(source_kind or kind, both if joint is True else first)
    target, why_target = kind_of(target_kind or kind, both if joint is True else second)
    if joint is True and source != target:
        raise RegardError(f"joint: the source is of {source} and the target of {target}; one kind would be right")
    reasons = [f"source: {why_source}", f"target: {why_target}"]
    if joint == "auto" and source == target:
        share = shared(source, first, second)
        joint = share >= SHARED
        reasons.append(f"{'joint' if joint else 'apart'}: the sides share {share:.0%} of their {units_of(source)}")
    source_model = learn_model(source, both if joint is True else first, size, least_count)
    target_model = source_model if joint is True else learn_model(target, second, size, least_count)
    pair = Tokenizers(Tokenizer(source, source_model, source_steps), Tokenizer(target, target_model, target_steps))
    return pair, reasons


def kind_of(asked: str, texts: Sequence[str]) -> tuple[Kind, str]:
    """The kind that is asked for, or chosen, and why."""
    if asked == "auto":
        return choose_kind(texts)
    if asked not in KINDS:
        raise unknown_name("kind", asked, [*KINDS, "auto"])
    return asked, f"{asked}: as asked for"


def units_of(kind: Kind) -> str:
    """What the sides are compared by."""
    return "characters" if kind == "characters" else "words"


def shared(kind: Kind, sources: Sequence[str], targets: Sequence[str]) -> float:
    """How much of either side's running words is seen on the other too, on the side where that is less."""
    split: Callable[[str], Sequence[str]] = list if units_of(kind) == "characters" else str.split
    ours, theirs = (Counter(unit for text in texts for unit in split(text)) for texts in (sources, targets))
    return min(share_in(ours, theirs), share_in(theirs, ours))


def share_in(counts: Counter[str], others: Counter[str]) -> float:
    """How much of what is counted is also counted among others."""
    return sum(count for unit, count in counts.items() if unit in others) / max(counts.total(), 1)
