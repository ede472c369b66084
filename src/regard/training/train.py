"""From a recipe to a trained run."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import torch

from regard.attention.scores import without_gradient
from regard.batch import UNKNOWN, Pair, collate
from regard.data.check import check, unknown_share
from regard.data.example import Example
from regard.data.load import Corpus, load_corpus
from regard.errors import RegardError
from regard.models import build
from regard.models.kernel_widths import set_kernel_widths
from regard.models.seq2seq import Seq2Seq
from regard.recipe import Recipe, to_recipe
from regard.run import Card, Run, checkpoints_of, write_text
from regard.settings import Table, shown
from regard.text import Tokenizers, learn_pair
from regard.training.corpus import PairCorpus, encode
from regard.training.loop import Counters, Trainer
from regard.training.loss import TrainingStep
from regard.training.suit import Facts, choose_model, is_symbols, suited
from regard.training.talk import Talk
from regard.training.validation import PairValidation

MAY_DIFFER = {
    *(f"training.{name}" for name in ("steps", "patience", "validate_most", "average")),
    *(f"data.{name}" for name in ("train", "source", "target", "valid", "valid_source", "valid_target")),
}
"""What may be said differently when a run goes on; that the data are the same is seen by their checksum."""


@dataclass(frozen=True)
class Prepared:
    """Everything that training needs, settled."""

    recipe: Recipe
    corpus: Corpus
    tokenizers: Tokenizers
    train: Sequence[Pair]
    valid: Sequence[Pair]


def train(
    table: Mapping[str, Any],
    out: str | Path,
    *,
    device: str = "cpu",
    base: str | Path | None = None,
    quiet: bool = False,
    where: str = "recipe",
) -> Counters:
    """Train what a recipe says in the folder `out`, or go on with what was begun there.

    Args:
        table: The recipe as plain values; what it leaves open is chosen to suit the data.
        out: The run folder.
        device: Where to train.
        base: A run whose tokenizer, model and parameters are taken over, to tune them.
        quiet: Say nothing but in the run's log.
        where: What the recipe is called in errors.
    """
    if not isinstance(table, Mapping):
        raise RegardError(f'train: found {table!r}; a recipe such as {{"data": {{"train": "pairs.tsv"}}}} is needed')
    run, start = Run(Path(out)), None if base is None else Run(Path(base))
    if start is not None and start.path.resolve() == run.path.resolve():
        raise RegardError(f"{run.path}: is the run to start from; choose another --out")
    going_on = run.exists()
    talk = Talk(run, quiet=quiet)
    if going_on:
        start = started_from(run, start)
    with run.locked(), left_as_it_was(run, talk):
        asked = going_on_from(run, table) if going_on else tuned(table, start, where)
        ready = prepare(asked, run if going_on else start, device, talk, where)
        if going_on:
            check_same(run, ready)
        model = new_model(ready, start, talk)
        begin(run, ready, model, start, talk)
        return fit(run, ready, model, device, talk)


@contextmanager
def left_as_it_was(run: Run, talk: Talk) -> Iterator[None]:
    """Remove what was made for a run that could not begin."""
    try:
        yield
    except BaseException as error:
        if not run.card_file.exists():
            run.discard()
            if isinstance(error, KeyboardInterrupt):
                talk.say("stopped before the first update; nothing was saved")
        raise


def going_on_from(run: Run, table: Mapping[str, Any]) -> Table:
    """The recipe of a run that goes on: what is not said again stays as it was, but for data, which are said as one."""
    before = run.read_recipe()
    name, named = before.get("model", {}).get("name"), table.get("model", {}).get("name")
    if named not in (None, name):
        raise RegardError(f"{run.path}: was begun with the model {name}, not {named}; choose another --out")
    if table.get("data", {}).keys() & {"train", "source"}:
        before["data"] = {}
    return {section: {**before.get(section, {}), **table.get(section, {})} for section in {**before, **table}}


def started_from(run: Run, start: Run | None) -> Run | None:
    """The run that one that goes on was started from; another is refused."""
    before = run.read_card().get("from")
    if start is not None and (before is None or start.path.resolve() != Path(before).resolve()):
        raise RegardError(
            f"{run.path}: was begun {f'from {before}' if before else 'without --from'}; choose another --out"
        )
    return Run(Path(before)) if before and not checkpoints_of(run) else None


def tuned(table: Mapping[str, Any], start: Run | None, where: str) -> Table:
    """A recipe with text and model of the run that it starts from."""
    if start is None:
        return dict(table)
    start.read_card()
    before = start.read_recipe()
    if "text" in table:
        raise RegardError(f"{where}: [text] comes from {start.path}; leave it out")
    return {**table, "text": before["text"], "model": {**before["model"], **table.get("model", {})}}


def prepare(table: Table, home: Run | None, device: str, talk: Talk, where: str) -> Prepared:
    """Read and check the data, learn the tokenizers or take those of a run, and settle what was left open."""
    recipe = to_recipe(table, where)
    torch.manual_seed(recipe.training.seed)
    corpus = load_corpus(recipe.data, recipe.training.seed)
    talk.say(f"data: {corpus.origin}")
    for line in check(corpus.train, corpus.valid).lines():
        talk.say(f"  {line}")
    if home is None:
        tokenizers, reasons = learn(recipe, corpus.train)
    else:
        home.check(home.tokenizer_file)
        tokenizers, reasons = Tokenizers.load(home.tokenizer_file), [f"taken from {home.path}"]
    for reason in reasons:
        talk.say(f"tokens: {reason}")
    corpus, train_pairs, valid_pairs = encoded(corpus, tokenizers, recipe.data.most_tokens, talk)
    if recipe.text.bpe_dropout and "bpe" not in (tokenizers.source.kind, tokenizers.target.kind):
        raise RegardError("text.bpe_dropout: neither side is of the kind bpe; set --source-kind bpe, or leave it out")
    name = recipe.model.get("name") or choose_model(len(train_pairs), tokenizers, recipe.model)
    recipe = replace(recipe, model={**recipe.model, "name": name})
    facts = Facts.of(train_pairs, symbols=is_symbols(tokenizers.target), on_gpu=device != "cpu")
    return Prepared(suited(recipe, facts), corpus, tokenizers, train_pairs, valid_pairs)


def learn(recipe: Recipe, examples: Sequence[Example]) -> tuple[Tokenizers, list[str]]:
    """Tokenizers for both sides."""
    text = recipe.text
    return learn_pair(
        [example.source for example in examples],
        [example.target for example in examples],
        source_kind=text.source_kind,
        target_kind=text.target_kind,
        size=text.size,
        least_count=text.least_count,
        joint=text.joint,
        source_steps=text.steps(text.moses_source),
        target_steps=text.steps(text.moses_target),
    )


def encoded(
    corpus: Corpus, tokenizers: Tokenizers, longest: int, talk: Talk
) -> tuple[Corpus, Sequence[Pair], Sequence[Pair]]:
    """Both parts as numbers, without what is too long."""
    parts = []
    for name, examples in (("train", corpus.train), ("valid", corpus.valid)):
        pairs = encode(examples, tokenizers)
        fits = [max(len(pair.source), len(pair.target or ())) < longest for pair in pairs]
        if not any(fits):
            raise RegardError(f"data: every {name} pair has more than {longest} tokens; raise --data.most-tokens")
        if not all(fits):
            talk.say(
                f"{name}: {fits.count(False)} pairs with more than {longest} tokens are left out (--data.most-tokens)"
            )
        parts.append((list(compress(examples, fits)), list(compress(pairs, fits))))
    (train_examples, train_pairs), (valid_examples, valid_pairs) = parts
    for side, place in (("source", 0), ("target", 1)):
        share = unknown_share([pair[place] or () for pair in valid_pairs], UNKNOWN)
        talk.say(f"validation, {side}: {100 * share:.1f} % of the tokens are unknown")
    return Corpus(train_examples, valid_examples, corpus.origin), train_pairs, valid_pairs


def new_model(ready: Prepared, start: Run | None, talk: Talk) -> Seq2Seq:
    """The model with its first parameters."""
    settings = {name: value for name, value in ready.recipe.model.items() if name != "name"}
    sizes = {"source_size": ready.tokenizers.source.size, "target_size": ready.tokenizers.target.size}
    torch.manual_seed(ready.recipe.training.seed)
    model = build(ready.recipe.model["name"], **sizes, **settings)
    if model.most_places is not None:
        check_places(model.most_places, ready)
    set_kernel_widths(model, collate(ready.train[:64]))
    for score in sorted(set(without_gradient(model).values())):
        talk.say(f"note: the score {score} gives query and keys no gradient; where it looks is not learnt")
    if start is not None:
        take_over(model, start)
    return model


def check_places(most: int, ready: Prepared) -> None:
    """Raise a `RegardError` if a text is longer than the positions that a model has learnt."""
    longest = max(max(len(pair.source), len(pair.target or ())) + 1 for pair in [*ready.train, *ready.valid])
    if longest > most:
        raise RegardError(
            f"model.longest is {most}, the longest text has {longest} tokens; raise it, or lower --data.most-tokens"
        )


def take_over(model: Seq2Seq, start: Run) -> None:
    """Start from the parameters of another run."""
    found, own = start.read_parameters(), model.state_dict()
    for name, tensor in own.items():
        if name not in found or found[name].shape != tensor.shape:
            was = tuple(found[name].shape) if name in found else "not there"
            raise RegardError(f"{start.path}: {name} is {was}, here {tuple(tensor.shape)}; --from needs the same model")
    model.load_state_dict({name: found[name] for name in own})


def begin(run: Run, ready: Prepared, model: Seq2Seq, start: Run | None, talk: Talk) -> None:
    """Write down what is about to be trained, and say it."""
    parameters = sum(p.numel() for p in model.parameters())
    recipe = ready.recipe
    if not run.card_file.exists():
        write_text(run.tokenizer_file, ready.tokenizers.to_json())
        run.write_recipe(recipe.table())
        run.write_card(
            {
                "task": "pairs",
                "model": recipe.model["name"],
                "parameters": parameters,
                "vocabulary": {"source": ready.tokenizers.source.size, "target": ready.tokenizers.target.size},
                "data": {
                    "origin": ready.corpus.origin,
                    "train": len(ready.train),
                    "valid": len(ready.valid),
                    "sha256": fingerprint(ready.corpus),
                },
                "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                **({"from": str(start.path)} if start else {}),
            }
        )
    sizes = ", ".join(f"{name} {shown(value)}" for name, value in recipe.model.items() if name != "name")
    talk.say(f"model: {recipe.model['name']}, {parameters:,} parameters ({sizes})")
    training = recipe.training
    talk.say(
        f"training: {training.steps} updates of {training.tokens} tokens a side at the most, rate {training.rate:g}, "
        f"validation every {training.validate_every}, best by {training.metric}"
    )


def fit(run: Run, ready: Prepared, model: Seq2Seq, device: str, talk: Talk) -> Counters:
    """Run the loop."""
    training = ready.recipe.training
    assert training.tokens is not None
    batches = PairCorpus(
        ready.corpus.train, ready.train, ready.tokenizers, training.tokens, training.seed, ready.recipe.text.bpe_dropout
    )
    talk.say(f"batches: {len(batches.plan(0))} an epoch, {100 * batches.full_plan(0).padding:.1f} % of them padding")
    metrics = ["exact"] if training.metric in ("exact", "loss") else ["exact", training.metric]
    validation = PairValidation(
        ready.corpus.valid, ready.valid, ready.tokenizers, training.tokens, training.validate_most, metrics, device
    )

    def on_better(counters: Counters) -> None:
        run.write_card({**run.read_card(), "best": best_of(counters, training.metric)})

    step = TrainingStep(model, training.smoothing)
    trainer = Trainer(step, batches, validation, training, run, device=device, talk=talk, on_better=on_better)
    try:
        with deterministic(training.deterministic):
            return trainer.train()
    except KeyboardInterrupt:
        talk.say(
            f"stopped; the same command again goes on from {f'step {trainer.saved}' if trainer.saved else 'the start'}"
        )
        raise


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """The same bits each time, where the device would rather be fast."""
    before = torch.are_deterministic_algorithms_enabled()
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS needs for it
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def best_of(counters: Counters, metric: str) -> Card:
    """The best validation, as the card says it."""
    assert counters.best is not None
    value = -counters.best if metric == "loss" else counters.best
    return {"step": counters.best_step, "metric": metric, "value": value, "seconds": round(counters.seconds, 1)}


def check_same(run: Run, ready: Prepared) -> None:
    """Raise a `RegardError` if a run was begun with other settings or other data."""
    card = run.read_card()
    if card.get("data", {}).get("sha256") != fingerprint(ready.corpus):
        raise RegardError(f"{run.path}: was begun with other data; choose another --out, or --from {run.path}")
    before, now = flat(run.read_recipe()), flat(ready.recipe.table())
    differing = sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k) and k not in MAY_DIFFER)
    if differing:
        name = differing[0]
        raise RegardError(
            f"{run.path}: was begun with {name} = {shown(before.get(name))}, not {shown(now.get(name))}"
            f"{f', and {len(differing) - 1} more settings differ' if len(differing) > 1 else ''}; choose another --out"
        )
    run.write_recipe(ready.recipe.table())
    run.write_card(card)


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table of tables as one with dotted names; lists as tuples."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = tuple(value) if isinstance(value, list) else value
    return found


def fingerprint(corpus: Corpus) -> str:
    """A checksum of all examples, in order."""
    found = hashlib.sha256()
    for part in (corpus.train, corpus.valid):
        found.update(f"{len(part)}\n".encode())
        for example in part:
            found.update(f"{example.source}\t{example.target}\n".encode(errors="surrogatepass"))
    return found.hexdigest()
