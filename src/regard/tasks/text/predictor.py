"""TextPredictor: generate and score text with a language model."""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, Unpack, overload

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import BOS, EOS, PAD, TextBatch, pad_rows
from regard.data.batches import plan_epoch
from regard.data.segments import ScoringWindow, build_evaluation_windows
from regard.decoding.generate import generate_beam, generate_steps, text_weights
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.score_text import iter_segment_log_probabilities
from regard.decoding.steps import collect_hypotheses
from regard.errors import RegardError
from regard.tasks.predictor import PartialAnswer, Predictor, Request, as_texts
from regard.tasks.progress import Progress
from regard.tasks.text.generation import PartialText, SampledTokens, build_text_chooser, iter_growing_texts
from regard.tasks.text.options import BEAM, GenerationOptions, MaxTokensBounds, SamplingOptions, TextExplainOptions
from regard.text import Tokenizer
from regard.text.decode_stream import decode_stream
from regard.text.tokenizer import BEGIN, END
from regard.views.attention_map import AttentionMap

if TYPE_CHECKING:
    from regard.attribution.methods import Subject
    from regard.maps.options import LookOptions
    from regard.tasks.text.actions import PredictText
    from regard.views.head_scores import HeadScores

TOKENS, SEGMENT = 8192, 2048
"""Batch size in tokens, and tokens per segment for models without a maximum length."""


@dataclass(frozen=True, eq=False)
class GeneratedText:
    """A generated text with its log-probability and, on request, its attention weights.

    The tokens are <bos>, the prompt and the text. Row t of the weights is the step that
    reads token t and predicts the next.
    """

    prompt: str
    text: str
    log_probability: float  # of the text, given the prompt
    ended: bool  # the model wrote <eos>
    tokens: tuple[str, ...]
    ids: tuple[int, ...] = field(repr=False)
    weights: Float[Tensor, "layers heads time time"] | None = field(default=None, repr=False)
    seed: int | None = None  # the seed used for sampling, if known
    alternatives: tuple[GeneratedText, ...] = field(default=(), repr=False)  # the n best, this one first

    def record(self) -> dict[str, Any]:
        """Return prompt and text as JSON values."""
        record: dict[str, Any] = {
            "prompt": self.prompt,
            "text": self.text,
            "log_probability": self.log_probability,
            "ended": self.ended,
            "tokens": self.tokens,
        }
        if self.seed is not None:
            record["seed"] = self.seed
        if self.alternatives:
            best = [
                {"text": alternative.text, "log_probability": alternative.log_probability}
                for alternative in self.alternatives
            ]
            record["alternatives"] = best
        return record

    def lines(self, options: Any) -> list[str]:
        """Return prompt and text as one item."""
        return [self.prompt + self.text]


@dataclass(frozen=True)
class ScoredText:
    """A text with its tokens and the log-probability of each token given those before it."""

    text: str
    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]

    @property
    def log_probability(self) -> float:
        """The log-probability of the whole text."""
        return math.fsum(self.log_probabilities)

    @property
    def weights(self) -> None:
        """Always None; use `regard.look` for the weights of a text."""

    def record(self) -> dict[str, Any]:
        """Return the text, its tokens and their log-probabilities as JSON values."""
        return {
            "text": self.text,
            "log_probability": self.log_probability,
            "tokens": self.tokens,
            "log_probabilities": self.log_probabilities,
        }

    def lines(self, options: PredictText) -> list[str]:
        """Return the log-probability of the text and, with `per_token`, each token with its own."""
        cells = [f"{self.log_probability:.4f}"]
        if options.per_token:
            scored_tokens = zip(self.tokens, self.log_probabilities, strict=True)
            # + 0.0 turns -0.0 into 0.0
            cells += [f"{token} {round(value, 2) + 0.0:.2f}" for token, value in scored_tokens]
        return ["\t".join(cells)]


class TextStreamOptions(TypedDict, total=False):
    """Keyword arguments of `TextPredictor.stream`, the fields of `SamplingOptions`."""

    max_tokens: int
    temperature: float | None
    top_k: int | None
    top_p: float | None
    greedy: bool
    seed: int | None


class TextGenerateOptions(TextStreamOptions, total=False):
    """Keyword arguments of `TextPredictor.generate`."""

    return_weights: bool


class TextPredictor(Predictor[GeneratedText]):
    """A trained language model.

    Example:
        >>> model = regard.load("runs/book")
        >>> model.generate("The ", max_tokens=20, seed=1).text
        >>> model.score_texts("The night was dark.").log_probability
    """

    task_name = "text"

    def __getattr__(self, name: str) -> NoReturn:
        """Say which method to use instead of `predict`, which could mean either of two."""
        reason = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name == "predict":
            reason += "; use generate(prompt) to continue a text, or score_texts(texts) for log-probabilities"
        raise AttributeError(reason, name=name, obj=self)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        return self.tokenizers.target

    @property
    def summary(self) -> str:
        return self.tokenizer.kind

    @overload
    def generate(self, prompts: str = ..., **options: Unpack[TextGenerateOptions]) -> GeneratedText: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def generate(self, prompts: Sequence[str], **options: Unpack[TextGenerateOptions]) -> list[GeneratedText]: ...
    def generate(
        self,
        prompts: Any = "",
        *,
        max_tokens: int = 200,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        greedy: bool = False,
        seed: int | None = None,
        return_weights: bool = False,
    ) -> GeneratedText | list[GeneratedText]:
        """Continue a prompt, or each of several prompts, by sampling.

        Args:
            prompts: One prompt or a sequence of prompts; an empty one starts a new document.
            max_tokens: The maximum number of tokens to generate; the model may end the text earlier.
            temperature: Divide the logits by this; values below 1 favor probable tokens. 1 by default.
            top_k: Sample only from the k most probable tokens.
            top_p: Sample only from the smallest set of most probable tokens whose probabilities sum to this.
            greedy: Take the most probable token at every step.
            seed: The same seed, prompt and settings give the same text; random by default.
            return_weights: Also return the attention weights over prompt and text.

        Returns:
            A text for one prompt, a list of texts for a sequence of prompts.

        Example:
            >>> regard.load("runs/book").generate("The ", temperature=0.8, max_tokens=50).text
        """
        sampling = SamplingOptions(
            max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, greedy=greedy, seed=seed
        )
        prompt_list = as_texts("generate", prompts)
        encoded_prompts = [self._encode_prompt(prompt, max_tokens, return_weights) for prompt in prompt_list]
        texts = []
        for prompt, prompt_ids in zip(prompt_list, encoded_prompts, strict=True):
            best = collect_hypotheses(self._iter_sampled(prompt_ids, sampling))[0]
            texts.append(self._to_text(prompt, best, return_weights))
        return texts[0] if isinstance(prompts, str) else texts

    def stream(self, prompt: str = "", **options: Unpack[TextStreamOptions]) -> Iterator[str]:
        """Yield the text that `generate` returns for the same options, in parts, as soon as they are generated."""
        sampling = SamplingOptions(**options)
        sampled = self._iter_sampled(self._encode_prompt(prompt, sampling.max_tokens), sampling)
        return decode_stream(self.tokenizer, (int(token) for token, _ in sampled), prompt)

    def continuations(
        self, prompt: str = "", *, max_tokens: int = 50, beam: int = 5, nbest: int = 1, return_weights: bool = False
    ) -> list[GeneratedText]:
        """Return the most probable continuations of a prompt by beam search, best first.

        Args:
            prompt: The beginning of the text; an empty one starts a new document.
            max_tokens: The maximum number of tokens to generate.
            beam: The beam size.
            nbest: How many texts to return, at most `beam`.
            return_weights: Also return the attention weights over prompt and text.
        """
        prompt_ids = self._encode_prompt(prompt, max_tokens, return_weights)
        hypotheses = generate_beam(self.model, prompt_ids, max_tokens=max_tokens, beam=beam, nbest=nbest)[0]
        return [self._to_text(prompt, hypothesis, return_weights) for hypothesis in hypotheses]

    @overload
    def score_texts(self, texts: str) -> ScoredText: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def score_texts(self, texts: Sequence[str], progress: Progress | None = ...) -> list[ScoredText]: ...
    def score_texts(self, texts: Any, progress: Progress | None = None) -> ScoredText | list[ScoredText]:
        """Compute the log-probability of each token of a text, or of each of several texts.

        Each text is scored as a document of its own. If the model was trained on lines as
        documents, <eos> at the end of the text is scored, too.

        Args:
            texts: One text or a sequence of texts.
            progress: Called with the number of texts done.

        Returns:
            A scored text for one text, a list of scored texts for a sequence of texts.
        """
        text_list = as_texts("score_texts", texts)
        encoded = [self.tokenizer.encode_with_words(text) for text in text_list]
        ends = {EOS: END} if self.recipe.data.document_unit == "line" else {}
        rows = [[BOS, *encoded_text.ids, *ends] for encoded_text in encoded]
        scores: dict[int, list[float]] = {}
        for indices in plan_epoch([(len(row), len(row)) for row in rows], batch_tokens=TOKENS).batches:
            scores.update(zip(indices, self._compute_log_probabilities([rows[i] for i in indices]), strict=True))
            if progress is not None:
                progress(len(scores))
        scored = [
            ScoredText(text, (*encoded_text.tokens, *ends.values()), tuple(scores[i]))
            for i, (text, encoded_text) in enumerate(zip(text_list, encoded, strict=True))
        ]
        return scored[0] if isinstance(texts, str) else scored

    def build_input(self, text: str, **further: Any) -> str:
        return text

    def check(self, options: GenerationOptions) -> None:
        if options.uses_beam:
            self._check_beam(options)
        else:
            build_text_chooser(self.device, options)

    def answer(
        self, requests: Sequence[Request], *, return_weights: bool = False, progress: Progress | None = None
    ) -> list[GeneratedText]:
        if return_weights:
            self.check_attention()
        groups: dict[Hashable, list[int]] = {}
        for index, request in enumerate(requests):
            key = self.batch_key(request)
            groups.setdefault((index,) if key is None else key, []).append(index)
        answers: dict[int, GeneratedText] = {}
        for indices in groups.values():
            for events in self.answer_in_steps([requests[index] for index in indices]):
                answers |= {
                    index: text for index, text in zip(indices, events, strict=True) if isinstance(text, GeneratedText)
                }
            if progress is not None:
                progress(len(answers))
        texts = [answers[index] for index in range(len(requests))]
        return [self._add_weights(text) for text in texts] if return_weights else texts

    def batch_key(self, request: Request, *, streamed: bool = False) -> Hashable:
        """Return the length of the prompt: prompts of equal length share a batch; beam search runs alone."""
        return None if request.options.uses_beam else len(self.tokenizer.encode(request.input))

    def limit_tokens(self, options: Any, input_: str, max_tokens: int) -> Any:
        exceeds_limit = isinstance(options, GenerationOptions) and options.max_tokens > max_tokens
        return replace(options, max_tokens=max_tokens) if exceeds_limit else options

    def answer_in_steps(
        self, requests: Sequence[Request], *, streamed: bool = False
    ) -> Iterator[list[GeneratedText | PartialAnswer | None]]:
        """Yield the parts of sampled texts, whose prompts have equal lengths; beam search yields only answers.

        The parts of a text concatenate to it; its answer follows its last part.
        """
        if requests[0].options.uses_beam:
            yield [self._search_best(request) for request in requests]
            return
        answered = [False] * len(requests)
        for texts in iter_growing_texts(self.model, self.tokenizer, self.device, requests):
            yield [
                PartialAnswer({"part": text.added_text}) if text.added_text or not text.finished else None
                for text in texts
            ]
            answers: list[GeneratedText | PartialAnswer | None] = [
                self._build_answer(request, text) if text.finished and not done else None
                for request, text, done in zip(requests, texts, answered, strict=True)
            ]
            if any(answers):
                yield answers
            answered = [text.finished for text in texts]

    def _build_answer(self, request: Request, text: PartialText) -> GeneratedText:
        """Build the answer to a request from its finished text, which is also its only alternative."""
        answer = self._build_text(request.input, text.text, text.ids, text.log_probability, text.ended)
        return replace(answer, alternatives=(answer,))

    def _search_best(self, request: Request) -> GeneratedText:
        """Answer a request by beam search."""
        options: GenerationOptions = request.options
        self._check_beam(options)
        nbest = options.nbest or 1
        beam = max(nbest, BEAM) if options.beam is None else options.beam
        best = self.continuations(request.input, max_tokens=options.max_tokens, beam=beam, nbest=nbest)
        return replace(best[0], alternatives=tuple(best))

    def _check_beam(self, options: GenerationOptions) -> None:
        sampling_options = [*options.sampling_options, *(["greedy"] if options.greedy else [])]
        if sampling_options:
            raise RegardError(f"{sampling_options[0]} cannot be combined with beam or nbest")
        beam, nbest = options.beam, options.nbest or 1
        if beam is not None and nbest > beam:
            raise RegardError(f"generate: nbest must be at most beam ({beam}), got {nbest}")

    def _build_text(
        self, prompt: str, text: str, ids: Sequence[int], log_probability: float, ended: bool
    ) -> GeneratedText:
        """Build a generated text from its token ids."""
        all_ids = (BOS, *self.tokenizer.encode(prompt), *ids)
        return GeneratedText(
            prompt, text, log_probability, ended, (BEGIN, *self.tokenizer.ids_to_tokens(all_ids[1:])), all_ids
        )

    def attention_map(self, text: GeneratedText) -> AttentionMap:
        """Return the attention weights of a text generated with `return_weights=True` as a map."""
        if not isinstance(text, GeneratedText):
            raise RegardError(f"attention_map: expected a GeneratedText, got {type(text).__name__}")
        if text.weights is None:
            raise RegardError("attention_map: the text has no weights; pass return_weights=True to generate")
        title = f"{self.name}: {text.prompt}{text.text}"
        return AttentionMap(text.tokens, text.tokens, text.weights.numpy(), title, "tokens")

    def build_map(self, text: str, options: LookOptions) -> AttentionMap:
        from regard.tasks.text.look import look_at_language_model

        return look_at_language_model(self, text, options)

    def encode_start(self, text: str, max_tokens: int) -> tuple[Int[Tensor, "1 time"], int]:
        """Return the first tokens of a text, at most as many as the model can read, and how many there are."""
        ids = [BOS, *self.tokenizer.encode(text)]
        limit = min(max_tokens, self.model.max_length or max_tokens)
        return torch.tensor([ids[:limit]], device=self.device), len(ids)

    def heads(self, text: Any, queries: int | None = None) -> HeadScores:
        if not isinstance(text, str):
            raise RegardError(f"heads: expected a text after the model, got {type(text).__name__}")
        tokens, total = self.encode_start(text, sys.maxsize)
        if tokens.shape[1] < total:
            raise RegardError(f"heads: text must have at most {tokens.shape[1]:,} tokens, got {total:,}")
        return self.score_heads(tokens, queries)

    def score_heads(self, tokens: Int[Tensor, "1 time"], queries: int | None) -> HeadScores:
        """Measure the heads of the model while it reads tokens; see `regard.heads`."""
        from regard.maps.heads import score_heads

        self.check_attention()
        return score_heads(self.model, tokens, self.model.read, self.name, queries)

    def build_subject(self, text: Any, options: TextExplainOptions) -> Subject:
        from regard.tasks.text.explain import TextSubject

        return TextSubject(self, text, options)

    def _iter_sampled(self, prompt_ids: Int[Tensor, "1 time"], options: SamplingOptions) -> Iterator[SampledTokens]:
        """Yield the sampled tokens and their log-probabilities."""
        return generate_steps(
            self.model, prompt_ids, options.max_tokens, build_text_chooser(self.device, options), allow_unknown=False
        )

    def _encode_prompt(self, prompt: str, tokens: int, return_weights: bool = False) -> Int[Tensor, "1 time"]:
        """Encode <bos> and the prompt as one row; raise a `RegardError` if it cannot be continued."""
        if not isinstance(prompt, str):
            raise RegardError(f"generate: expected a string, got {type(prompt).__name__}")
        MaxTokensBounds.check("generate: max_tokens", tokens)
        prompt_ids = torch.tensor([[BOS, *self.tokenizer.encode(prompt)]], device=self.device)
        max_positions = self.model.max_length
        if return_weights:
            self.check_attention()
            if max_positions is not None and prompt_ids.shape[1] + tokens > max_positions:
                raise RegardError(
                    f"generate: return_weights is limited to {max_positions - 1} tokens for {self.name}, "
                    f"got {prompt_ids.shape[1] - 1} in the prompt and max_tokens={tokens}"
                )
        return prompt_ids

    def _to_text(self, prompt: str, hypothesis: Hypothesis, return_weights: bool) -> GeneratedText:
        """Decode a hypothesis."""
        text = "".join(decode_stream(self.tokenizer, hypothesis.target, prompt))
        generated = self._build_text(prompt, text, hypothesis.target, hypothesis.log_probability, hypothesis.ended)
        return self._add_weights(generated) if return_weights else generated

    def _add_weights(self, text: GeneratedText) -> GeneratedText:
        """Return a text with its attention weights, from one forward pass over it."""
        weights = text_weights(self.model, torch.tensor([text.ids], device=self.device))[0]
        return replace(text, weights=weights.float().cpu())

    def _compute_log_probabilities(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probability of each token of some rows, except <bos> at the start.

        Rows longer than the model can read are scored in overlapping windows, each token
        with at least half of the maximum length as context.
        """
        tokens, lengths = pad_rows(rows)
        max_positions, carries = self.model.max_length or SEGMENT, self.model.stateful
        warmup = 0 if carries else max_positions // 2
        span = np.array([[0, tokens.shape[1]]])
        windows = [
            ScoringWindow(*row)
            for row in build_evaluation_windows(span, stride=max_positions - warmup, warmup=warmup).tolist()
        ]
        segments = [build_window_batch(tokens, window, fresh=not carries or not window.read_from) for window in windows]
        log_probabilities = torch.zeros(tokens.shape[0], tokens.shape[1] - 1)
        for window, window_scores in zip(
            windows, iter_segment_log_probabilities(self.model, segments, self.device), strict=True
        ):
            log_probabilities[:, window.read_from : window.stop - 1] += window_scores.float().cpu()
        return [row[: length - 1] for row, length in zip(log_probabilities.tolist(), lengths.tolist(), strict=True)]


def build_window_batch(tokens: Int[Tensor, "rows time"], window: ScoringWindow, fresh: bool) -> TextBatch:
    """Return the part of some rows that a window reads; targets that are not scored are PAD."""
    targets = tokens[:, window.read_from + 1 : window.stop].clone()
    targets[:, : window.score_from - window.read_from - 1] = PAD
    return TextBatch(tokens[:, window.read_from : window.stop - 1], targets, fresh)
