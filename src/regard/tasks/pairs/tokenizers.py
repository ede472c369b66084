"""The tokenizers of pairs: learned from the data, or loaded from an existing run."""

from __future__ import annotations

from collections.abc import Sequence

from regard.data.example import Example
from regard.data.formats.columns import parse_sides
from regard.data.pair_check import pluralize
from regard.errors import RegardError
from regard.run import Run
from regard.tasks.pairs.settings import PairRecipe, PairText
from regard.text import TextSteps, TokenizerPair, learn_tokenizer_pair
from regard.text.choose_form import FormChoice, SideCharacters, choose_forms
from regard.text.learn_columns import Column, learn_column_tokenizer, select_spelled
from regard.text.normal_forms import NormalForm
from regard.text.tokenizer_pair import resolve_kind
from regard.training.reporter import Reporter
from regard.training.resume import load_tokenizers

SideColumns = tuple[Sequence[Column], Sequence[Column]]
"""The columns of source and target."""


def learn_tokenizers(
    recipe: PairRecipe,
    columns: SideColumns | None,
    examples: Sequence[Example],
    reporter: Reporter,
    *,
    detected: bool,
) -> TokenizerPair:
    """Learn the tokenizers of both sides, and report what they are and why.

    Args:
        recipe: The recipe.
        columns: The columns of both sides; None if each is a text.
        examples: The training examples.
        reporter: Reports the choices.
        detected: Whether the columns were detected, so that the user may want others.
    """
    if columns is None:
        tokenizers, reasons = learn_text_tokenizers(recipe, examples)
    else:
        tokenizers, description, reasons = learn_column_tokenizers(recipe, columns, examples)
        hint = f"; to say otherwise: --columns {','.join(recipe.data.columns)}" if detected else ""
        reporter.info(f"columns: {description}{hint}")
    for reason in reasons:
        reporter.info(f"tokens: {reason}")
    return tokenizers


def load_same_tokenizers(recipe: PairRecipe, existing_run: Run, reporter: Reporter) -> TokenizerPair:
    """Load the tokenizers of the run that a training resumes or starts from."""
    tokenizers = load_tokenizers(existing_run)
    if recipe.ties_vocabularies and not tokenizers.shared_vocab:
        raise RegardError(f"model.tied requires a shared vocabulary, but {existing_run.path} has one per side")
    check_column_counts(recipe, tokenizers, existing_run)
    reporter.info(f"tokens: loaded from {existing_run.path}")
    return tokenizers


def check_column_counts(recipe: PairRecipe, tokenizers: TokenizerPair, existing_run: Run) -> None:
    """Raise a `RegardError` if the data has other numbers of columns than the tokenizers of a run."""
    columns = recipe.data.columns
    counts = tuple(len(side) for side in parse_sides(columns)) if columns else (1, 1)
    expected = tokenizers.column_counts
    if counts != expected:
        raise RegardError(
            f"data: {existing_run.path} has {pluralize(expected[0], 'source column')} and "
            f"{pluralize(expected[1], 'target column')}, got {counts[0]} and {counts[1]}; select them with --columns"
        )


def check_bpe_dropout(text: PairText, tokenizers: TokenizerPair) -> None:
    """Raise a `RegardError` for BPE dropout without BPE."""
    if text.bpe_dropout and "bpe" not in (tokenizers.source.kind, tokenizers.target.kind):
        raise RegardError(
            "text.bpe_dropout requires a bpe tokenizer; set --source-tokenizer or --target-tokenizer to bpe"
        )


def learn_column_tokenizers(
    recipe: PairRecipe, columns: SideColumns, examples: Sequence[Example]
) -> tuple[TokenizerPair, str, list[str]]:
    """Learn the tokenizers of sides of table columns; return them with a description, and reasons for normal forms."""
    text = recipe.text
    if recipe.ties_vocabularies or text.shared_vocab is True:
        setting = "model.tied" if recipe.ties_vocabularies else "text.shared_vocab"
        raise RegardError(f"{setting} requires one vocabulary for both sides, but every column has its own")
    sources, targets = [example.source for example in examples], [example.target for example in examples]
    spelled_source = select_spelled(columns[0], sources, targets, text.tokenizers[0])
    spelled_target = select_spelled(columns[1], targets, sources, text.tokenizers[1])
    kinds = (spelled_source.kind, spelled_target.kind)
    forms = choose_normal_forms(text, kinds, spelled_source.texts, spelled_target.texts)
    source, target = (
        learn_column_tokenizer(
            side_columns,
            texts,
            beside,
            kind=kind,
            vocab_size=text.vocab_size,
            min_frequency=text.min_frequency,
            steps=get_steps(recipe, form.form, moses),
        )
        for side_columns, texts, beside, kind, form, moses in (
            (columns[0], sources, targets, text.tokenizers[0], forms[0], text.moses_source),
            (columns[1], targets, sources, text.tokenizers[1], forms[1], text.moses_target),
        )
    )
    reasons = [*forms[0].reasons, *forms[1].reasons]
    return TokenizerPair(source.tokenizer, target.tokenizer), f"{source.description} -> {target.description}", reasons


def get_steps(recipe: PairRecipe, form: NormalForm, moses: str | None) -> TextSteps:
    """Return the preprocessing of a side in a normal form and in the language `moses`, if it is given."""
    return TextSteps(
        normal_form=form, lowercase=recipe.text.lowercase, normalize_punctuation=moses is not None, moses=moses
    )


def learn_text_tokenizers(recipe: PairRecipe, examples: Sequence[Example]) -> tuple[TokenizerPair, list[str]]:
    """Learn the tokenizers of two texts; return them with the reasons for their kinds and normal forms."""
    text, tied = recipe.text, recipe.ties_vocabularies
    sources, targets = [example.source for example in examples], [example.target for example in examples]
    source_kind, target_kind = text.tokenizers
    source_form, target_form = choose_normal_forms(text, text.tokenizers, sources, targets)
    tokenizers, reasons = learn_tokenizer_pair(
        sources,
        targets,
        source_kind=source_kind,
        target_kind=target_kind,
        vocab_size=text.vocab_size,
        min_frequency=text.min_frequency,
        shared_vocab=True if tied else text.shared_vocab,
        source_steps=get_steps(recipe, source_form.form, text.moses_source),
        target_steps=get_steps(recipe, target_form.form, text.moses_target),
    )
    if tied and text.shared_vocab == "auto":
        reasons.append("shared vocabulary: model.tied uses one embedding for both sides")
    return tokenizers, [*source_form.reasons, *target_form.reasons, *reasons]


def choose_normal_forms(
    text: PairText, kinds: tuple[str, str], sources: Sequence[str], targets: Sequence[str]
) -> tuple[FormChoice, FormChoice]:
    """Return the normal form of each side: as set or, for auto, chosen from the texts."""
    source, target = text.normal_forms
    if source != "auto" and target != "auto":
        return FormChoice(source), FormChoice(target)
    source_kind, target_kind = (
        resolve_kind(kind, texts)[0] for kind, texts in zip(kinds, (sources, targets), strict=True)
    )
    source_choice, target_choice = choose_forms(
        SideCharacters("source", sources, source_kind), SideCharacters("target", targets, target_kind)
    )
    return (
        source_choice if source == "auto" else FormChoice(source),
        target_choice if target == "auto" else FormChoice(target),
    )
