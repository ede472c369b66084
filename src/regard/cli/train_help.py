"""What `regard train --help` prints: every setting, from the dataclasses that have them."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

from regard.settings import Field, fields_of

WIDTH, COLUMN = 98, 32

USAGE = """\
Usage: regard train DATA --out FOLDER [--model NAME] [--SETTING VALUE ...]

Train a model on pairs of texts, a language model on text, a classifier on labelled texts
(--task label) or a tagger on tagged words (--task tag). What is not set is chosen to suit
the data. The same command again goes on where it stopped.

  DATA  a file of pairs (.tsv, .csv, .jsonl, .tmx, .po, .mo, also .gz, - is stdin), of texts
        and labels (.tsv, .csv, .jsonl), of words and tags (.bio, .conll), a file (.txt, also .gz)
        or a folder of text, a recipe (.toml), or a built-in corpus:
        {corpora}.
        Or give two files, line by line, by --source and --target.
"""

OWN = {
    "--out FOLDER": "where the run goes",
    "--model NAME": "{models}; with --help, its settings alone",
    "--from RUN": "start from a trained run: its tokenizer, model and parameters",
    "--device NAME": "auto (a GPU if there is one), cpu, cuda, cuda:1",
    "--quiet": "say nothing; everything is in the run's log",
}

SECTIONS = """
Settings, as in a recipe, by their whole name or by the last part of it where no other has
it: --training.steps or --steps. Defaults are in brackets. What stands without a VALUE is
true or false, and true if nothing follows.
"""

EXAMPLES = {
    "pairs": "Example: regard train dates --model bahdanau --out runs/dates",
    "text": "Example: regard train book.txt --model gpt --out runs/book",
    "label": "Example: regard train questions.tsv --task label --out runs/questions",
    "tag": "Example: regard train ner.bio --task tag --out runs/ner",
}

SUITED = ("dropout", "embedding", "hidden", "width")
"""Settings of models whose default is chosen to suit the data."""


def print_help(words: Sequence[str]) -> None:
    """All options; of one preset, and of one built-in corpus, if they are named."""
    from regard.data.corpora import CORPORA
    from regard.models import MODELS

    corpus = next((word for word in words if word in CORPORA), None)
    own = [line for option, what in OWN.items() for line in row(option, what.format(models=", ".join(MODELS)))]
    model = named_model(words)
    settings = list(settings_lines(model, corpus))
    example = EXAMPLES["pairs" if model is None else MODELS[model].task]
    print("\n".join([USAGE.format(corpora=", ".join(CORPORA)), *own, SECTIONS.rstrip(), *settings, "", example]))


def named_model(words: Sequence[str]) -> str | None:
    """The preset that a command line names."""
    for word, after in pairwise([*words, "-"]):
        if word.startswith("--model="):
            return word.removeprefix("--model=")
        if word == "--model" and not after.startswith("-"):
            return after
    return None


def settings_lines(model: str | None, corpus: str | None) -> Iterator[str]:
    """Every setting, section by section."""
    from regard.data.corpora import CORPORA
    from regard.recipe import known_fields

    yield from section("data", known_fields("data", {}), "where examples come from", without=("corpus",))
    if corpus is not None:
        yield from section("data.corpus", fields_of(CORPORA[corpus]), f"the built-in corpus {corpus}")
    else:
        yield from row("--data.corpus.NAME VALUE", "of a built-in corpus: regard train dates --help lists those of one")
    yield from section("text", known_fields("text", {}), "how text becomes tokens")
    for title, known in model_sections(model):
        yield from section("model", known, title)
    yield from section("reading", known_fields("reading", {}), "of --unlabelled text; only by their whole names")
    yield from section("training", known_fields("training", {}), "what has no default is chosen to suit the data")
    yield from section("decoding", known_fields("decoding", {}), "unless regard predict is told otherwise")


def model_sections(model: str | None) -> Iterator[tuple[str, dict[str, Field]]]:
    """The settings of a preset with its own defaults, or of each kind of model."""
    from regard.models import MODELS
    from regard.recipe import model_fields

    if model is not None:
        known = model_fields(model, "--model")
        own = MODELS[model].settings
        yield (
            model,
            {name: dataclasses.replace(each, default=own.get(name, each.default)) for name, each in known.items()},
        )
        return
    kinds: dict[type, list[str]] = {}
    for name, preset in MODELS.items():
        kinds.setdefault(preset.config, []).append(name)
    for names in kinds.values():
        yield ", ".join(names), model_fields(names[0])


def section(name: str, known: Mapping[str, Field], title: str, without: Sequence[str] = ()) -> Iterator[str]:
    """A section of settings under its title."""
    yield ""
    yield from textwrap.wrap(f"{name}: {title}", WIDTH)
    for key, each in known.items():
        if key not in without:
            suited = name == "model" and key in SUITED
            yield from row(f"--{name}.{key.replace('_', '-')}{value_of(each.type)}", described(each, suited))


def value_of(kind: Any) -> str:
    """What goes behind an option."""
    if kind is bool:
        return ""
    kinds = {int: " N", float: " X"}
    return next((kinds[each] for each in (kind, *get_args(kind)) if each in kinds), " VALUE")


def described(each: Field, suited: bool) -> str:
    """What a setting is, what it can be, and its default."""
    choices = choices_of(each)
    said = set(each.help.replace(",", " ").split())
    listed = f" ({', '.join(choices)})" if set(choices) - said else ""
    return f"{each.help}{listed}{'' if suited else default_of(each)}".strip()


def choices_of(each: Field) -> list[str]:
    """The words that a setting can be, where there are only some."""
    from regard.attention.scores import SCORES

    if each.name == "score":
        return list(SCORES)
    kinds = [kind for kind in (each.type, *get_args(each.type)) if get_origin(kind) is Literal]
    also = ["true", "false"] if bool in get_args(each.type) else []
    return [*also, *(str(choice) for kind in kinds for choice in get_args(kind))]


def default_of(each: Field) -> str:
    """The default in brackets, where there is one."""
    if each.default in (dataclasses.MISSING, None, (), {}, ""):
        return ""
    value = each.default
    if isinstance(value, tuple):
        return f" [{', '.join(map(str, value))}]"
    return f" [{str(value).lower() if isinstance(value, bool) else value}]"


def row(option: str, what: str) -> Iterator[str]:
    """An option, and what it is beside it."""
    lines = textwrap.wrap(what, WIDTH - COLUMN, break_long_words=False, break_on_hyphens=False)
    first = f"  {option}"
    if len(first) >= COLUMN:
        yield first
        first = ""
    for line in lines or [""]:
        yield f"{first:{COLUMN}}{line}".rstrip()
        first = ""
