"""Generate text with a language model, as a stream, at once or by beam search, and show its attention."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.watch import watch
from regard.batch import BOS, PAD
from regard.decoding.beam import BeamSearch, check_beam, collect_results
from regard.decoding.forced import stack_layers
from regard.decoding.greedy import choose_most_probable
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.sample import build_sampler
from regard.decoding.steps import TokenChooser, check_eval_mode, collect_hypotheses, iter_decoding
from regard.errors import RegardError
from regard.models.language_model import LanguageModel


def generate(
    model: LanguageModel,
    prompt: Int[Tensor, "rows time"],
    *,
    max_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    greedy: bool = False,
    generator: torch.Generator | None = None,
    allow_unknown: bool = False,
) -> Iterator[Int[Tensor, " rows"]]:
    """Continue texts, yielding one token per row at a time; PAD after a row's <eos>.

    Stops after the last row's <eos> or after `max_tokens` steps; you can stop iterating
    earlier. Arguments are checked at once, not at the first token.

    Args:
        model: A model in evaluation mode.
        prompt: The texts to continue, each starting with <bos>, all of one length, on the model's device.
        max_tokens: Maximum number of tokens to generate, including <eos>.
        temperature: Logits are divided by this; below 1 makes probable tokens more probable.
        top_k: Sample from the k most probable tokens only; ties go to the smaller id.
        top_p: Sample from the smallest set of most probable tokens whose probabilities sum to at
            least top_p (nucleus sampling), among the top k.
        greedy: Take the most probable token instead of sampling; ties go to the smaller id.
        generator: A random generator on the model's device; by default torch's global one.
        allow_unknown: Allow <unk> in the text.

    Raises:
        RegardError: A setting is out of range, the prompt does not start with <bos>, or the model is
            in training mode.

    Example:
        >>> for tokens in generate(model, prompt, max_tokens=50, temperature=0.8):
        ...     print(tokenizer.decode(tokens.tolist()), end="")
    """
    choose = build_token_chooser(prompt.device, temperature, top_k, top_p, greedy, generator)
    return (chosen for chosen, _ in generate_steps(model, prompt, max_tokens, choose, allow_unknown))


def generate_hypotheses(
    model: LanguageModel,
    prompt: Int[Tensor, "rows time"],
    *,
    max_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    greedy: bool = False,
    generator: torch.Generator | None = None,
    allow_unknown: bool = False,
) -> list[Hypothesis]:
    """Return what `generate` yields with the same arguments as one hypothesis per row, without the prompt.

    The log-probability is that of the model, before temperature, top_k and top_p.
    """
    choose = build_token_chooser(prompt.device, temperature, top_k, top_p, greedy, generator)
    return collect_hypotheses(generate_steps(model, prompt, max_tokens, choose, allow_unknown))


@torch.no_grad()
def generate_beam(
    model: LanguageModel,
    prompt: Int[Tensor, "rows time"],
    *,
    max_tokens: int,
    beam: int,
    nbest: int = 1,
    length_penalty: float = 0.0,
    allow_unknown: bool = False,
) -> list[list[Hypothesis]]:
    """Return the most probable continuations of each row by beam search, best first, without the prompt.

    Unlike in `beam_search`, continuations without <eos> rank equally with finished ones.

    Args:
        model: A model in evaluation mode.
        prompt: As in `generate`.
        max_tokens: Maximum number of tokens to generate, including <eos>.
        beam: Number of live hypotheses per row.
        nbest: Number of continuations to return per row, at most `beam`.
        length_penalty: As in `beam_search`.
        allow_unknown: Allow <unk> in the text.

    Raises:
        RegardError: As in `generate` and `beam_search`.
    """
    if beam < 1:
        raise RegardError(f"generate_beam: beam must be at least 1, got {beam}")
    check_beam(beam, nbest, length_penalty)
    check_prompt(model, prompt, max_tokens)
    if not len(prompt):
        return []
    last = prompt[:, -1]
    limits = torch.full_like(last, max_tokens)
    search = BeamSearch(last, limits, beam, nbest, length_penalty, ended_first=False)
    return collect_results(search.run(model, model.start(prompt, max_tokens, copies=beam), allow_unknown))


def build_token_chooser(
    device: torch.device,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    greedy: bool,
    generator: torch.Generator | None,
) -> TokenChooser:
    """Build the function that chooses each token: greedy or sampling."""
    if not greedy:
        return build_sampler(temperature, top_k, top_p, generator, device)
    if temperature != 1 or top_k is not None or top_p is not None:
        raise RegardError("generate: greedy cannot be combined with temperature, top_k or top_p")
    return choose_most_probable


@torch.no_grad()
def generate_steps(
    model: LanguageModel, prompt: Int[Tensor, "rows time"], max_tokens: int, choose: TokenChooser, allow_unknown: bool
) -> Iterator[tuple[Int[Tensor, " rows"], Float[Tensor, " rows"]]]:
    """Yield the tokens of each step and their log-probabilities."""
    check_prompt(model, prompt, max_tokens)
    if not len(prompt):
        return iter(())
    state, last = model.start(prompt, max_tokens), prompt[:, -1]
    return iter_decoding(model, state, last, torch.full_like(last, max_tokens), choose, allow_unknown=allow_unknown)


def check_prompt(model: LanguageModel, prompt: Int[Tensor, "rows time"], max_tokens: int) -> None:
    """Raise a `RegardError` if a prompt is invalid or the model is in training mode."""
    check_eval_mode(model)
    if max_tokens < 1:
        raise RegardError(f"generate: max_tokens must be at least 1, got {max_tokens}")
    if not prompt.shape[1] or bool((prompt[:, 0] != BOS).any()):
        raise RegardError(f"generate: every row of the prompt must start with <bos> ({BOS})")
    if bool((prompt == PAD).any()):
        raise RegardError(f"generate: prompt must not contain <pad> ({PAD}); all rows must have the same length")


@torch.no_grad()
def text_weights(
    model: LanguageModel, tokens: Int[Tensor, "rows time"]
) -> Float[Tensor, "rows layers heads time time"]:
    """Return the self-attention weights of texts, from one pass over them.

    Row t is the step that reads token t and predicts the next; column s is the token (or the
    state after it) attended to. Columns after t are zero.

    Args:
        model: A model with attention, in evaluation mode.
        tokens: Texts of one length, each starting with <bos>, on the model's device.

    Raises:
        RegardError: The model has no attention or is in training mode, or the texts are too long.
    """
    if not model.default_attention:
        raise RegardError(f"text_weights: {type(model).__name__} has no attention")
    check_text_length(model, tokens, "text_weights")
    with watch(model) as recorded:
        model.read(tokens)
    return stack_layers(model, recorded, "text_weights")


def check_text_length(model: LanguageModel, tokens: Int[Tensor, "rows time"], caller: str) -> None:
    """Raise a `RegardError` if a text exceeds the model's context, or the model is in training mode."""
    check_eval_mode(model)
    if model.max_length is not None and tokens.shape[1] > model.max_length:
        raise RegardError(f"{caller}: text must have at most {model.max_length} tokens, got {tokens.shape[1]}")
