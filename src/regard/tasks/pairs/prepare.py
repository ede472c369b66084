"""Pairs of texts, made ready for training."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from regard.batch import Pair, collate
from regard.data.check import check, unknown_share
from regard.data.example import Example
from regard.errors import RegardError
from regard.run import Run
from regard.tasks.pairs.batches import PairCorpus, encode
from regard.tasks.pairs.defaults import Facts, choose_model, choose_settings
from regard.tasks.pairs.load import Corpus, load_corpus
from regard.tasks.pairs.settings import PairRecipe
from regard.tasks.pairs.validation import PairValidation
from regard.text import TextSteps, Tokenizers, learn_pair
from regard.training.going_on import tokenizers_of
from regard.training.loss import PairStep
from regard.training.prepared import Prepared
from regard.training.talk import Talk


def prepare_pairs(recipe: PairRecipe, home: Run | None, device: str, talk: Talk) -> Prepared:
    """Read and check the data, learn the tokenizers or take those of a run, and settle what was left open."""
    corpus = load_corpus(recipe.data, recipe.training.seed)
    talk.say(f"data: {corpus.origin}")
    for line in check(corpus.train, corpus.valid).lines():
        talk.say(f"  {line}")
    if home is None:
        tokenizers, reasons = learn(recipe, corpus.train)
    else:
        tokenizers, reasons = tokenizers_of(home), [f"taken from {home.path}"]
    for reason in reasons:
        talk.say(f"tokens: {reason}")
    corpus, train, valid = encoded(corpus, tokenizers, recipe.data.most_tokens, talk)
    if recipe.text.bpe_dropout and "bpe" not in (tokenizers.source.kind, tokenizers.target.kind):
        raise RegardError("text.bpe_dropout: neither side is of the kind bpe; set --source-kind bpe, or leave it out")
    name = recipe.model.get("name") or choose_model(len(train), tokenizers, recipe.model)
    recipe = replace(recipe, model={**recipe.model, "name": name})
    facts = Facts.of(train, tokenizers.target, on_gpu=device != "cpu")
    return settled(choose_settings(recipe, facts), corpus, tokenizers, train, valid, device)


def settled(
    recipe: PairRecipe,
    corpus: Corpus,
    tokenizers: Tokenizers,
    train: Sequence[Pair],
    valid: Sequence[Pair],
    device: str,
) -> Prepared:
    """All of it, with the batches and how they are validated."""
    training = recipe.training
    assert training.tokens is not None
    batches = PairCorpus(corpus.train, train, tokenizers, training.tokens, training.seed, recipe.text.bpe_dropout)
    first = batches.full_plan(0)
    metrics = ["exact"] if training.metric in ("exact", "loss") else ["exact", training.metric]
    validation = PairValidation(
        corpus.valid, valid, tokenizers, training.tokens, training.validate_most, metrics, device
    )
    return Prepared(
        recipe=recipe,
        tokenizers=tokenizers,
        batches=batches,
        validate=validation,
        step=PairStep,
        first=collate(train[:64]),
        longest=max(max(len(pair.source), len(pair.target or ())) + 1 for pair in [*train, *valid]),
        data={"origin": corpus.origin, "train": len(train), "valid": len(valid), "sha256": fingerprint(corpus)},
        each="tokens a side",
        amount=f"{len(first)} an epoch, {100 * first.padding:.1f} % of them padding",
    )


def learn(recipe: PairRecipe, examples: Sequence[Example]) -> tuple[Tokenizers, list[str]]:
    """Tokenizers for both sides."""
    text = recipe.text

    def steps(moses: str | None) -> TextSteps:
        return TextSteps(lowercase=text.lowercase, normalise_punctuation=moses is not None, moses=moses)

    return learn_pair(
        [example.source for example in examples],
        [example.target for example in examples],
        kind=text.kind,
        source_kind=None if text.source_kind == "auto" else text.source_kind,
        target_kind=None if text.target_kind == "auto" else text.target_kind,
        size=text.size,
        least_count=text.least_count,
        joint=text.joint,
        source_steps=steps(text.moses_source),
        target_steps=steps(text.moses_target),
    )


def encoded(
    corpus: Corpus, tokenizers: Tokenizers, longest: int, talk: Talk
) -> tuple[Corpus, Sequence[Pair], Sequence[Pair]]:
    """Both parts as numbers, without what is too long."""
    parts = []
    for name, examples in (("train", corpus.train), ("valid", corpus.valid)):
        pairs = encode(examples, tokenizers)
        fits = [max(len(pair.source), len(pair.target or ())) <= longest for pair in pairs]
        if not any(fits):
            raise RegardError(f"data: every {name} pair has more than {longest} tokens; raise --data.most-tokens")
        if not all(fits):
            talk.say(
                f"{name}: {fits.count(False)} pairs with more than {longest} tokens are left out (--data.most-tokens)"
            )
        parts.append((list(compress(examples, fits)), list(compress(pairs, fits))))
    (train_examples, train_pairs), (valid_examples, valid_pairs) = parts
    for side, place in (("source", 0), ("target", 1)):
        share = unknown_share(pair[place] or () for pair in valid_pairs)
        talk.say(f"validation, {side}: {100 * share:.1f} % of the tokens are unknown")
    return Corpus(train_examples, valid_examples, corpus.origin), train_pairs, valid_pairs


def fingerprint(corpus: Corpus) -> str:
    """A checksum of all examples, in order."""
    found = hashlib.sha256()
    for part in (corpus.train, corpus.valid):
        found.update(f"{len(part)}\n".encode())
        for example in part:
            found.update(f"{example.source}\t{example.target}\n".encode(errors="surrogatepass"))
    return found.hexdigest()
