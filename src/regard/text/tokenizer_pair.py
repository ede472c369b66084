"""TokenizerPair: the tokenizers of source and target, saved in one file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from regard.errors import RegardError, unknown_name
from regard.files import check_file_version, parse_json, wrap_read_errors
from regard.settings import convert_value
from regard.text.choose import choose_kind
from regard.text.column_tokenizer import ColumnTokenizer, count_columns, join_tokenizers
from regard.text.learn import learn_model
from regard.text.saved_model import parse_model
from regard.text.steps import NO_STEPS, TextSteps
from regard.text.tokenizer import KINDS, Kind, Tokenizer

VERSION = 1
MAX_COLUMNS = 100  # on a side
MIN_OVERLAP = 0.8  # share of words (or characters) in common from which to use a shared vocabulary


@dataclass(frozen=True, eq=False)
class TokenizerPair:
    """The tokenizers of source and target, as returned by `learn_tokenizer_pair`."""

    source: Tokenizer
    target: Tokenizer

    @property
    def shared_vocab(self) -> bool:
        """Whether both sides use the same ids, so they can share embeddings; the steps may differ."""
        return self.source.model is self.target.model

    def sizes(self) -> dict[str, int]:
        """Return the vocabulary sizes for a model config; `vocab_size` is for decoder-only models."""
        return {
            "source_vocab_size": self.source.size,
            "target_vocab_size": self.target.size,
            "vocab_size": self.target.size,
        }

    @property
    def vocabulary(self) -> dict[str, int]:
        """Vocabulary sizes, for the card of a run."""
        return {"source": self.source.size, "target": self.target.size}

    @property
    def column_counts(self) -> tuple[int, int]:
        """Number of columns of source and target."""
        return count_columns(self.source), count_columns(self.target)

    @property
    def description(self) -> str:
        """What the tokens of both sides are."""
        return f"{self.source.description} -> {self.target.description}"

    def to_json(self) -> str:
        """Return both tokenizers as JSON."""
        target = to_record(self.target)
        if self.shared_vocab:
            target["model"] = None
        content = {
            "version": VERSION,
            "shared_vocab": self.shared_vocab,
            "source": to_record(self.source),
            "target": target,
        }
        return json.dumps(content, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, location: str) -> TokenizerPair:
        """Parse the JSON of `to_json`; `location` names it in errors."""
        content = parse_json(text, location)
        check_file_version(content, VERSION, "tokenizers", location)
        source = parse_tokenizer(content.get("source"), f"{location}: source")
        shared = source if content.get("shared_vocab") is True else None
        return cls(source, parse_tokenizer(content.get("target"), f"{location}: target", shared))

    def save(self, path: str | Path) -> None:
        """Write both tokenizers to a file."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> TokenizerPair:
        """Load tokenizers written by `save`."""
        try:
            with wrap_read_errors(Path(path)):
                text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise RegardError(f"{path} is not valid UTF-8: byte {error.start}") from None
        return cls.from_json(text, str(path))


def to_record(tokenizer: Tokenizer) -> dict[str, Any]:
    """Convert a tokenizer to JSON values; the model has the format of Hugging Face's `tokenizers`."""
    if isinstance(tokenizer, ColumnTokenizer):
        columns = zip(tokenizer.names, tokenizer.columns, strict=True)
        return {"columns": [{"name": name, **to_record(column)} for name, column in columns]}
    model = json.loads(tokenizer.model.to_str())
    return {"kind": tokenizer.kind, "steps": asdict(tokenizer.steps), "model": model}


def parse_tokenizer(entry: object, location: str, shared: Tokenizer | None = None) -> Tokenizer:
    """Build a tokenizer from its record; one that shares a vocabulary takes the model of the other."""
    if not isinstance(entry, dict):
        raise RegardError(f"{location}: missing tokenizer")
    if "columns" in entry:
        return parse_columns(entry["columns"], location)
    return parse_plain_tokenizer(entry, location, shared)


def parse_plain_tokenizer(entry: dict[str, Any], location: str, shared: Tokenizer | None = None) -> Tokenizer:
    """Build the tokenizer of a text without columns from its record."""
    kind = entry.get("kind")
    if kind not in KINDS:
        raise unknown_name(f"{location}: kind", kind, KINDS)
    steps = convert_value(entry.get("steps"), TextSteps, f"{location}: steps")
    if shared is not None and shared.kind != kind:
        raise RegardError(f"{location}: kind must be {shared.kind}, that of the shared vocabulary, got {kind}")
    model = parse_model(entry.get("model"), kind, location) if shared is None else shared.model
    return Tokenizer(kind, model, steps)


def parse_columns(entries: object, location: str) -> ColumnTokenizer:
    """Build the tokenizer of several columns from their records."""
    if not isinstance(entries, list) or not 2 <= len(entries) <= MAX_COLUMNS:
        raise RegardError(f"{location}: columns must be a list of 2 to {MAX_COLUMNS} tokenizers")
    names = [entry["name"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
    if len(names) < len(entries):
        raise RegardError(f"{location}: every column must have a name")
    columns = [
        parse_plain_tokenizer(entry, f"{location}: column {number}") for number, entry in enumerate(entries, start=1)
    ]
    return join_tokenizers(names, columns)


def learn_tokenizer_pair(
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    kind: str = "auto",
    source_kind: str | None = None,
    target_kind: str | None = None,
    vocab_size: int | None = None,
    min_frequency: int = 1,
    shared_vocab: bool | Literal["auto"] = "auto",
    source_steps: TextSteps = NO_STEPS,
    target_steps: TextSteps = NO_STEPS,
) -> tuple[TokenizerPair, list[str]]:
    """Learn the tokenizers of both sides of a corpus.

    Args:
        sources: Source texts.
        targets: Target texts.
        kind: Kind of both sides, as in `learn_tokenizer`; "auto" uses `choose_kind`.
        source_kind: Kind of the source, if it differs.
        target_kind: Kind of the target, if it differs.
        vocab_size: Size of each vocabulary, as in `learn_tokenizer`.
        min_frequency: As in `learn_tokenizer`, for both sides.
        shared_vocab: Whether both sides share one vocabulary, learned from both; "auto" shares it if the kinds are
            equal and each side has 80% of its words (or characters) in common with the other.
        source_steps: Preprocessing of the source.
        target_steps: Preprocessing of the target.

    Returns:
        The tokenizers, and the reasons for each choice as lines of text.

    Raises:
        RegardError: An argument is invalid, or there is no text.

    Example:
        >>> tokenizers, reasons = learn_tokenizer_pair(["ein hund"], ["a dog"], kind="words")
    """
    source_texts = [source_steps.apply(text) for text in sources]
    target_texts = [target_steps.apply(text) for text in targets]
    all_texts = [*source_texts, *target_texts]
    source, why_source = resolve_kind(source_kind or kind, all_texts if shared_vocab is True else source_texts)
    target, why_target = resolve_kind(target_kind or kind, all_texts if shared_vocab is True else target_texts)
    if shared_vocab is True and source != target:
        raise RegardError(f"shared_vocab requires the same tokenizer for both sides, got {source} and {target}")
    reasons = [f"source: {why_source}", f"target: {why_target}"]
    if shared_vocab == "auto" and source == target:
        share = compute_overlap(source, source_texts, target_texts)
        shared_vocab = share >= MIN_OVERLAP
        reasons.append(
            f"{'shared vocabulary' if shared_vocab else 'separate vocabularies'}: "
            f"the sides share {share:.0%} of their {get_unit_name(source)}"
        )
    source_model = learn_model(source, all_texts if shared_vocab is True else source_texts, vocab_size, min_frequency)
    target_model = (
        source_model if shared_vocab is True else learn_model(target, target_texts, vocab_size, min_frequency)
    )
    pair = TokenizerPair(Tokenizer(source, source_model, source_steps), Tokenizer(target, target_model, target_steps))
    return pair, reasons


def resolve_kind(kind: str, texts: Sequence[str]) -> tuple[Kind, str]:
    """Return the given or chosen kind, and the reason."""
    if kind == "auto":
        return choose_kind(texts)
    if kind not in KINDS:
        raise unknown_name("kind", kind, [*KINDS, "auto"])
    return kind, f"{kind}: as configured"


def get_unit_name(kind: Kind) -> str:
    """Return the unit by which the sides are compared."""
    return "characters" if kind == "characters" else "words"


def compute_overlap(kind: Kind, sources: Sequence[str], targets: Sequence[str]) -> float:
    """Return the share of words of a side that also occur on the other; the smaller of the two."""
    split: Callable[[str], Sequence[str]] = list if get_unit_name(kind) == "characters" else str.split
    source_counts, target_counts = (
        Counter(unit for text in texts for unit in split(text)) for texts in (sources, targets)
    )
    return min(compute_share_in(source_counts, target_counts), compute_share_in(target_counts, source_counts))


def compute_share_in(counts: Counter[str], others: Counter[str]) -> float:
    """Return the share of the counts whose unit is also in `others`."""
    return sum(count for unit, count in counts.items() if unit in others) / max(counts.total(), 1)
