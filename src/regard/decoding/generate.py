"""Texts of a language model: written as a stream, whole or by a beam; given ones scored and looked into."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.watch import watch
from regard.batch import BOS, PAD
from regard.decoding.beam import Search, check_beam, results_of
from regard.decoding.forced import stacked
from regard.decoding.greedy import most_probable
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.sample import drawing
from regard.decoding.steps import Choose, check_settled, walk, walked
from regard.errors import RegardError
from regard.models.language import LanguageModel


def generate(
    model: LanguageModel,
    beginning: Int[Tensor, "rows time"],
    *,
    tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    greedy: bool = False,
    generator: torch.Generator | None = None,
    allow_unknown: bool = False,
) -> Iterator[Int[Tensor, " rows"]]:
    """Go on with texts, one token of each row at a time; PAD after the <eos> of a row.

    It is over after the last row's <eos>, or after `tokens` steps. What is wrong with the
    settings is said at once. Whoever wants no more can stop at any token.

    Args:
        model: In evaluation mode.
        beginning: The texts so far, <bos> first, all of one length, where the model is.
        tokens: The most tokens to write, <eos> included.
        temperature: What logits are divided by; below 1 the probable becomes more probable.
        top_k: Draw from so many most probable tokens only, the smaller numbers first among equals.
        top_p: Draw only from the fewest most probable tokens that have this share together,
            of all that may be chosen and are among the top k.
        greedy: Take the most probable token, the smallest number of equals, and draw nothing.
        generator: Of random numbers, on the model's device; torch's own unless told otherwise.
        allow_unknown: Whether <unk> may be chosen.
    """
    choose = chooser(beginning.device, temperature, top_k, top_p, greedy, generator)
    return (chosen for chosen, _ in written(model, beginning, tokens, choose, allow_unknown))


def generate_whole(
    model: LanguageModel,
    beginning: Int[Tensor, "rows time"],
    *,
    tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    greedy: bool = False,
    generator: torch.Generator | None = None,
    allow_unknown: bool = False,
) -> list[Hypothesis]:
    """What `generate` writes with the same settings, one hypothesis for each row, without the beginning.

    The log-probability is that of the model, not of the changed distribution it was drawn
    from.
    """
    choose = chooser(beginning.device, temperature, top_k, top_p, greedy, generator)
    return walked(written(model, beginning, tokens, choose, allow_unknown))


@torch.no_grad()
def continuations(
    model: LanguageModel,
    beginning: Int[Tensor, "rows time"],
    *,
    tokens: int,
    beam: int,
    nbest: int = 1,
    length_penalty: float = 0.0,
    allow_unknown: bool = False,
) -> list[list[Hypothesis]]:
    """For each row the most probable ways to go on that a beam finds, best first, without the beginning.

    Those that have not ended after so many tokens rank among those that have, unlike in
    `beam_search`: most texts go on.

    Args:
        model: In evaluation mode.
        beginning: As in `generate`.
        tokens: The most tokens to write, <eos> included.
        beam: How many hypotheses of each row live at a time.
        nbest: How many to give back, at most `beam`.
        length_penalty: As in `beam_search`.
        allow_unknown: Whether <unk> may be chosen.
    """
    if beam < 1:
        raise RegardError(f"continuations: beam is {beam}; 1 is the least")
    check_beam(beam, nbest, length_penalty)
    check_beginning(model, beginning, tokens)
    if not len(beginning):
        return []
    last = beginning[:, -1]
    limits = torch.full_like(last, tokens)
    search = Search(last, limits, beam, nbest, length_penalty, ended_first=False)
    return results_of(search.walk(model, model.start(beginning, tokens, copies=beam), allow_unknown))


def chooser(
    device: torch.device,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    greedy: bool,
    generator: torch.Generator | None,
) -> Choose:
    """What chooses each token, on a device."""
    if not greedy:
        return drawing(temperature, top_k, top_p, generator, device)
    if temperature != 1 or top_k is not None or top_p is not None:
        raise RegardError("generate: greedy draws nothing; leave out temperature, top_k and top_p, or greedy")
    return most_probable


@torch.no_grad()
def written(
    model: LanguageModel, beginning: Int[Tensor, "rows time"], tokens: int, choose: Choose, allow_unknown: bool
) -> Iterator[tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]]:
    """The walk on from a beginning: the tokens of each step and their log-probabilities."""
    check_beginning(model, beginning, tokens)
    if not len(beginning):
        return iter(())
    state, last = model.start(beginning, tokens), beginning[:, -1]
    return walk(model, state, last, torch.full_like(last, tokens), choose, allow_unknown=allow_unknown)


def check_beginning(model: LanguageModel, beginning: Int[Tensor, "rows time"], tokens: int) -> None:
    """Raise a `RegardError` for what no text can begin with."""
    check_settled(model)
    if tokens < 1:
        raise RegardError(f"generate: tokens is {tokens}; 1 is the least")
    if not beginning.shape[1] or bool((beginning[:, 0] != BOS).any()):
        raise RegardError(f"generate: a beginning without <bos> ({BOS}); every row has it first")
    if bool((beginning == PAD).any()):
        raise RegardError(f"generate: a beginning with <pad> ({PAD}); rows of one call have equal length")


@torch.no_grad()
def text_weights(
    model: LanguageModel, tokens: Int[Tensor, "rows time"]
) -> Float[Tensor, "rows layers heads time time"]:
    """The attention of texts to themselves, taken from one pass over them.

    Row t is the step that read token t and predicts the next; column s is the place of
    the token, or of the state after it, that was looked at. No row looks past itself.

    Args:
        model: In evaluation mode, with attention.
        tokens: Texts of one length from their beginning, <bos> first, where the model is.
    """
    if not model.attended:
        raise RegardError(f"text_weights: {type(model).__name__} has no attention to show")
    check_text(model, tokens, "text_weights")
    with watch(model) as seen:
        model.read(tokens)
    return stacked(model, seen, "text_weights")


def check_text(model: LanguageModel, tokens: Int[Tensor, "rows time"], where: str) -> None:
    """Refuse a text that is too long to be read at once, and a model that is not settled."""
    check_settled(model)
    if model.most_places is not None and tokens.shape[1] > model.most_places:
        raise RegardError(
            f"{where}: a text of {tokens.shape[1]} tokens; this model reads {model.most_places} at once at the most"
        )
