"""Text, made ready for training a language model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from regard.data.check import counted
from regard.data.documents import read_documents
from regard.data.segments import (
    SCORED,
    WARMUP,
    SegmentBatches,
    Spans,
    document_spans,
    evaluation_windows,
    hold_out,
    targets_of,
    window_batches,
)
from regard.data.tokens import TokenFile, text_checksum, write_tokens
from regard.errors import RegardError
from regard.models import MODELS, LanguageModel
from regard.run import Run
from regard.tasks.text.defaults import TextFacts, choose_model, choose_settings
from regard.tasks.text.settings import TextData, TextRecipe
from regard.tasks.text.validation import TextValidation
from regard.text import TextSteps, Tokenizer, Tokenizers, choose_text_kind, learn_text
from regard.text.tokenizer import is_spelt
from regard.training.going_on import tokenizers_of
from regard.training.loss import TextStep
from regard.training.prepared import Prepared
from regard.training.talk import Talk

MOST_HELD_OUT = 500_000
"""Tokens; more of them would say nothing new of a model, only later."""


@dataclass(frozen=True)
class Parts:
    """A text to train on and one to validate with, as spans of token files that may be one."""

    train: TokenFile
    train_spans: Spans
    valid: TokenFile
    valid_spans: Spans
    origin: str

    @property
    def sha256(self) -> str:
        """A checksum of both."""
        return f"{self.train.totals.sha256} {self.valid.totals.sha256}"


def prepare_text(recipe: TextRecipe, run: Run, home: Run | None, device: str, talk: Talk) -> Prepared:
    """Cut the text into tokens, learning how or as a run does it, and settle what was left open."""
    recipe.data.check_given("a file or a folder of text")
    if "-" in (recipe.data.train, recipe.data.valid):
        raise RegardError("standard input: a text is read more than once; save it to a file")
    if home is None:
        tokenizer, reason = learn_tokens(recipe)
        tokenizers = Tokenizers(tokenizer, tokenizer)
    else:
        tokenizers, reason = tokenizers_of(home), f"taken from {home.path}"
    talk.say(f"tokens: {reason}")
    parts = read_parts(recipe, run, tokenizers.target, talk)
    name = recipe.model.get("name") or choose_model(device != "cpu", recipe.model)
    recipe = replace(recipe, model={**recipe.model, "name": name})
    tokens = int(targets_of(parts.train_spans).sum())
    facts = TextFacts(tokens, is_spelt(tokenizers.target), on_gpu=device != "cpu")
    return settled(choose_settings(recipe, facts), parts, tokenizers, device)


def learn_tokens(recipe: TextRecipe) -> tuple[Tokenizer, str]:
    """A tokenizer for the text to train on, and why it is of its kind."""
    text, path, documents = recipe.text, recipe.data.train, recipe.data.documents
    assert path is not None

    def texts() -> Iterator[str]:
        return (chunk.text for chunk in read_documents(path, documents))

    if text.kind == "auto":
        kind, reason = choose_text_kind(sum(map(len, texts())))
    else:
        kind, reason = text.kind, f"{text.kind}: as asked for"
    steps = TextSteps(lowercase=text.lowercase)
    return learn_text(kind, texts(), size=text.size, least_count=text.least_count, steps=steps), reason


def read_parts(recipe: TextRecipe, run: Run, tokenizer: Tokenizer, talk: Talk) -> Parts:
    """The text to train on and that to validate with, a part of the first unless one is given."""
    data = recipe.data
    assert data.train is not None
    train = tokens_of(data.train, data, run, "train", tokenizer)
    say_size("text", train, talk)
    if data.valid is not None:
        valid = tokens_of(data.valid, data, run, "valid", tokenizer)
        say_size("validation", valid, talk)
        return Parts(train, document_spans(train), valid, document_spans(valid), data.train)
    share = min(data.held_out, MOST_HELD_OUT / train.totals.tokens)
    ours, held = hold_out(train, share, recipe.training.seed)
    count = int(targets_of(held).sum())
    talk.say(f"validation: {count:,} tokens of the text are held out")
    return Parts(train, ours, train, held, data.train)


def tokens_of(text: str, data: TextData, run: Run, name: str, tokenizer: Tokenizer) -> TokenFile:
    """A text as tokens: those of the run if it goes on, which must be of the same text, else made now."""
    path = run.checkpoints / f"{name}.tokens"
    if run.card_file.exists() and path.with_suffix(".json").exists():
        found = TokenFile.open(path)
        if found.totals.sha256 != text_checksum(read_documents(text, data.documents)):
            raise RegardError(f"{text}: is not the text that {run.path} was begun with; choose another --out")
        return found
    return write_tokens(path, read_documents(text, data.documents), tokenizer)


def say_size(name: str, file: TokenFile, talk: Talk) -> None:
    """How much text there is, and how much of it no token stands for."""
    totals = file.totals
    unknown = f", {100 * totals.unknown / totals.tokens:.1f} % of them unknown" if totals.unknown else ""
    talk.say(
        f"{name}: {counted(totals.documents, 'document')}, {totals.characters:,} characters, {totals.words:,} words, "
        f"{totals.tokens:,} tokens{unknown}"
    )


def settled(recipe: TextRecipe, parts: Parts, tokenizers: Tokenizers, device: str) -> Prepared:
    """All of it, with the batches and how they are validated."""
    training, kind = recipe.training, MODELS[recipe.model["name"]].model
    assert training.tokens is not None and training.segment is not None and issubclass(kind, LanguageModel)
    batches = SegmentBatches(
        parts.train,
        parts.train_spans,
        tokenizers.target,
        training.tokens,
        training.segment,
        kind.carries,
        training.seed,
    )
    first = batches.plan(0)
    stride, warmup = (SCORED, WARMUP) if kind.carries else (training.segment, 0)
    windows = evaluation_windows(parts.valid_spans, stride=stride, warmup=warmup)
    groups = partial(window_batches, windows, parts.valid, tokens=training.tokens, segment=training.segment)
    train, valid = (int(targets_of(spans).sum()) for spans in (parts.train_spans, parts.valid_spans))
    return Prepared(
        recipe=recipe,
        tokenizers=tokenizers,
        batches=batches,
        validate=TextValidation(groups, device),
        step=TextStep,
        first=batches.batch(first[0], 0).tokens,
        longest=0 if kind.carries else training.segment,
        data={"origin": parts.origin, "train": train, "valid": valid, "sha256": parts.sha256},
        each="tokens",
        amount=f"{len(first)} an epoch, {100 * first.padding:.1f} % of them padding",
    )
