"""TextPredictor: text that goes on, and how much a text surprises the model."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import BOS, EOS, PAD, TextBatch, padded
from regard.data.batches import plan
from regard.data.segments import Window, evaluation_windows
from regard.decoding.generate import continuations, text_weights, written
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.reading import read_on
from regard.decoding.steps import walked
from regard.errors import RegardError
from regard.tasks.options import check_range
from regard.tasks.predictor import Part, Predictor, Request, as_texts
from regard.tasks.progress import Progress
from regard.tasks.text.options import BEAM, MOST_TOKENS, DrawOptions, WordOptions, WriteOptions
from regard.tasks.text.writing import Drawn, growing_texts, new_chooser
from regard.text import Tokenizer
from regard.text.streaming import written_parts
from regard.text.tokenizer import BEGIN, END
from regard.views.attention_map import AttentionMap

if TYPE_CHECKING:
    from regard.explaining.methods import Subject
    from regard.looking.options import LookOptions
    from regard.tasks.text.actions import PredictText

TOKENS, SEGMENT = 8192, 2048
"""Places of a batch, and tokens of a row that are read at once where a model can carry on."""


@dataclass(frozen=True, eq=False)
class Text:
    """What a model wrote after a prompt, how probable it found it, and where it looked.

    The tokens are those of prompt and text, behind <bos>. Row t of the weights is the
    step that read token t and wrote the next.
    """

    prompt: str
    text: str
    log_probability: float  # of the text, after the prompt
    ended: bool  # whether the model ended it
    tokens: tuple[str, ...]
    ids: tuple[int, ...] = field(repr=False)
    weights: Float[Tensor, "layers heads time time"] | None = field(default=None, repr=False)
    seed: int | None = None  # that it was drawn with, where that is known
    alternatives: tuple[Text, ...] = field(
        default=(), repr=False
    )  # the n best, itself first, where they were asked for

    def record(self) -> dict[str, Any]:
        """What the text began with, and what follows."""
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
            best = [{"text": each.text, "log_probability": each.log_probability} for each in self.alternatives]
            record["alternatives"] = best
        return record

    def lines(self, options: Any) -> list[str]:
        """Prompt and text."""
        return [self.prompt + self.text]


@dataclass(frozen=True)
class Reading:
    """A text that was read: its tokens, and the log-probability of each after those before it."""

    text: str
    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]

    @property
    def log_probability(self) -> float:
        """Of the whole text."""
        return math.fsum(self.log_probabilities)

    @property
    def weights(self) -> None:
        """None: a text that is only read is looked at by `regard.look`."""

    def record(self) -> dict[str, Any]:
        """The text, its tokens, and how probable they are."""
        return {
            "text": self.text,
            "log_probability": self.log_probability,
            "tokens": self.tokens,
            "log_probabilities": self.log_probabilities,
        }

    def lines(self, options: PredictText) -> list[str]:
        """The log-probability of the text, and behind tabs each token with its surprise."""
        cells = [f"{self.log_probability:.4f}"]
        if options.tokens:
            surprise = zip(self.tokens, self.log_probabilities, strict=True)
            cells += [f"{token} {abs(value):.2f}" for token, value in surprise]
        return ["\t".join(cells)]


class Drawing(TypedDict, total=False):
    """What `TextPredictor.stream` can be told, and `DrawOptions` has."""

    tokens: int
    temperature: float | None
    top_k: int | None
    top_p: float | None
    greedy: bool
    seed: int | None


class Options(Drawing, total=False):
    """What `TextPredictor.generate` can be told, and describes."""

    return_weights: bool


class TextPredictor(Predictor[Text]):
    """Goes on with a text, and tells how much a text surprises it."""

    task_name = "text"

    @property
    def tokenizer(self) -> Tokenizer:
        """That of the text."""
        return self.tokenizers.target

    @property
    def summary(self) -> str:
        return self.tokenizer.kind

    @overload
    def generate(self, prompts: str = ..., **options: Unpack[Options]) -> Text: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def generate(self, prompts: Sequence[str], **options: Unpack[Options]) -> list[Text]: ...
    def generate(self, prompts: Any = "", *, return_weights: bool = False, **options: Any) -> Text | list[Text]:
        """Go on with a prompt, or with each of several.

        Args:
            prompts: What comes before; nothing is the beginning of a document.
            return_weights: Also give the attention over prompt and text.
            options: `tokens`: how many to write at the most, 200 unless set; the model may end its text before.
                `temperature`: what logits are divided by; below 1 the probable becomes more probable. `top_k`: draw
                from so many most probable tokens only. `top_p`: draw only from the fewest most probable tokens that
                have this share together. `greedy`: always take the most probable token. `seed`: the same seed, prompt
                and settings give the same text.
        """
        drawing, several = DrawOptions(**options), as_texts("generate", prompts)
        beginnings = [self._begun(prompt, drawing.tokens, return_weights) for prompt in several]
        found = []
        for prompt, begun in zip(several, beginnings, strict=True):
            best = walked(self._walk(begun, drawing))[0]
            found.append(self._text(prompt, best, return_weights))
        return found[0] if isinstance(prompts, str) else found

    def stream(self, prompt: str = "", **options: Unpack[Drawing]) -> Iterator[str]:
        """What `generate` writes by the same options, in parts, each as soon as it is written."""
        drawing = DrawOptions(**options)
        walk = self._walk(self._begun(prompt, drawing.tokens), drawing)
        return written_parts(self.tokenizer, (int(token) for token, _ in walk), prompt)

    def continuations(
        self, prompt: str = "", *, tokens: int = 50, beam: int = 5, nbest: int = 1, return_weights: bool = False
    ) -> list[Text]:
        """The most probable texts that a beam finds, best first."""
        begun = self._begun(prompt, tokens, return_weights)
        found = continuations(self.model, begun, tokens=tokens, beam=beam, nbest=nbest)[0]
        return [self._text(prompt, each, return_weights) for each in found]

    @overload
    def read(self, texts: str) -> Reading: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def read(self, texts: Sequence[str], progress: Progress | None = ...) -> list[Reading]: ...
    def read(self, texts: Any, progress: Progress | None = None) -> Reading | list[Reading]:
        """How probable each token of a text is, or of each of several, as a document of its own.

        Where the model was trained on lines as documents, the end of the text counts too.
        """
        several = as_texts("read", texts)
        encoded = [self.tokenizer.encoded(text) for text in several]
        ends = {EOS: END} if self.recipe.data.documents == "line" else {}
        rows = [[BOS, *each.ids, *ends] for each in encoded]
        found: dict[int, list[float]] = {}
        for places in plan([(len(row), len(row)) for row in rows], tokens=TOKENS).batches:
            found.update(zip(places, self._log_probabilities([rows[place] for place in places]), strict=True))
            if progress is not None:
                progress(len(found))
        readings = [
            Reading(text, (*each.tokens, *ends.values()), tuple(found[place]))
            for place, (text, each) in enumerate(zip(several, encoded, strict=True))
        ]
        return readings[0] if isinstance(texts, str) else readings

    def subject(self, text: str, **further: Any) -> str:
        return text

    def check(self, options: WriteOptions) -> None:
        if options.searches:
            self._check_beam(options)
        else:
            new_chooser(self.device, options)

    def answer(
        self, requests: Sequence[Request], *, return_weights: bool = False, progress: Progress | None = None
    ) -> list[Text]:
        if return_weights:
            self.check_attention()
        together: dict[Hashable, list[int]] = {}
        for place, request in enumerate(requests):
            key = self.batch_key(request)
            together.setdefault((place,) if key is None else key, []).append(place)
        answers: dict[int, Text] = {}
        for places in together.values():
            for events in self.steps([requests[place] for place in places]):
                answers |= {place: text for place, text in zip(places, events, strict=True) if isinstance(text, Text)}
            if progress is not None:
                progress(len(answers))
        texts = [answers[place] for place in range(len(requests))]
        return [self._with_weights(text) for text in texts] if return_weights else texts

    def batch_key(self, request: Request, *, streamed: bool = False) -> Hashable:
        """Texts of equally many tokens go on together, whatever their options; a search goes alone."""
        return None if request.options.searches else len(self.tokenizer.encode(request.subject))

    def limited(self, options: Any, subject: str, most_tokens: int) -> Any:
        writes = isinstance(options, WriteOptions) and options.tokens > most_tokens
        return replace(options, tokens=most_tokens) if writes else options

    def steps(self, requests: Sequence[Request], *, streamed: bool = False) -> Iterator[list[Text | Part | None]]:
        """Go on with prompts of equally many tokens; the most probable texts of one prompt come at once."""
        if requests[0].options.searches:
            yield [self._best(request) for request in requests]
            return
        told = [False] * len(requests)
        for texts in growing_texts(self.model, self.tokenizer, self.device, requests):
            events: list[Text | Part | None] = []
            for row, (request, text) in enumerate(zip(requests, texts, strict=True)):
                if text.over and not told[row]:
                    answer = self._whole(request.subject, text.text, text.ids, text.log_probability, text.ended)
                    events.append(replace(answer, alternatives=(answer,)))
                    told[row] = True
                else:
                    events.append(None if text.over else Part({"part": text.part}))
            yield events

    def _best(self, request: Request) -> Text:
        """The most probable ways to go on with a prompt."""
        options: WriteOptions = request.options
        self._check_beam(options)
        nbest = options.nbest or 1
        beam = max(nbest, BEAM) if options.beam is None else options.beam
        best = self.continuations(request.subject, tokens=options.tokens, beam=beam, nbest=nbest)
        return replace(best[0], alternatives=tuple(best))

    def _check_beam(self, options: WriteOptions) -> None:
        drawn = [*options.drawn, *(["greedy"] if options.greedy else [])]
        if drawn:
            raise RegardError(f"{drawn[0]}: a beam draws nothing; leave it out, or beam and nbest")
        beam, nbest = options.beam, options.nbest or 1
        if beam is not None and nbest > beam:
            raise RegardError(f"generate: {nbest} best of a beam of {beam} are too many; set beam to {nbest} or more")

    def _whole(self, prompt: str, text: str, ids: Sequence[int], log_probability: float, ended: bool) -> Text:
        """A text that is written."""
        whole = (BOS, *self.tokenizer.encode(prompt), *ids)
        return Text(prompt, text, log_probability, ended, (BEGIN, *self.tokenizer.tokens_of(whole[1:])), whole)

    def attention_map(self, text: Text) -> AttentionMap:
        """The weights of a text as a record that every view draws."""
        if not isinstance(text, Text):
            raise RegardError(f"attention_map: found {type(text).__name__}; one Text is needed")
        if text.weights is None:
            raise RegardError("attention_map: the text has no weights; generate it with return_weights=True")
        title = f"{self.name}: {text.prompt}{text.text}"
        return AttentionMap(text.tokens, text.tokens, text.weights.numpy(), title, "tokens")

    def look(self, text: str, options: LookOptions) -> AttentionMap:
        from regard.tasks.text.look import look_at_text

        return look_at_text(self, text, options)

    def explain(self, text: Any, options: WordOptions) -> Subject:
        from regard.tasks.text.explain import TextSubject

        return TextSubject(self, text, options)

    def _walk(self, begun: Int[Tensor, "1 time"], options: DrawOptions) -> Iterator[Drawn]:
        """The tokens that are drawn after a beginning, and their log-probabilities."""
        return written(self.model, begun, options.tokens, new_chooser(self.device, options), allow_unknown=False)

    def _begun(self, prompt: str, tokens: int, return_weights: bool = False) -> Int[Tensor, "1 time"]:
        """<bos> and the prompt, as one row; what cannot be done with it is said at once."""
        if not isinstance(prompt, str):
            raise RegardError(f"generate: found {type(prompt).__name__}; a prompt is a text")
        check_range("generate", "tokens", tokens, 1, MOST_TOKENS)
        begun = torch.tensor([[BOS, *self.tokenizer.encode(prompt)]], device=self.device)
        most = self.model.most_places
        if return_weights:
            self.check_attention()
            if most is not None and begun.shape[1] + tokens > most:
                raise RegardError(
                    f"generate: a prompt of {begun.shape[1] - 1} tokens and {tokens} more; the weights of {most - 1} "
                    f"together at the most can be given, as {self.name} reads no more at once"
                )
        return begun

    def _text(self, prompt: str, found: Hypothesis, return_weights: bool) -> Text:
        """A hypothesis as text."""
        text = "".join(written_parts(self.tokenizer, found.target, prompt))
        whole = self._whole(prompt, text, found.target, found.log_probability, found.ended)
        return self._with_weights(whole) if return_weights else whole

    def _with_weights(self, text: Text) -> Text:
        """A text with its attention, by one pass that reads what was written."""
        weights = text_weights(self.model, torch.tensor([text.ids], device=self.device))[0]
        return replace(text, weights=weights.float().cpu())

    def _log_probabilities(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """The log-probability of each token of some rows but the first, which is <bos>.

        What is longer than the model can read at once is read in windows, each token
        after at least half of what can be read.
        """
        tokens, lengths = padded(rows)
        most, carries = self.model.most_places or SEGMENT, self.model.carries
        warmup = 0 if carries else most // 2
        whole = np.array([[0, tokens.shape[1]]])
        windows = [Window(*row) for row in evaluation_windows(whole, stride=most - warmup, warmup=warmup).tolist()]
        segments = [segment_of(tokens, window, fresh=not carries or not window.read_from) for window in windows]
        found = torch.zeros(tokens.shape[0], tokens.shape[1] - 1)
        for window, here in zip(windows, read_on(self.model, segments, self.device), strict=True):
            found[:, window.read_from : window.stop - 1] += here.float().cpu()
        return [row[: length - 1] for row, length in zip(found.tolist(), lengths.tolist(), strict=True)]


def segment_of(tokens: Int[Tensor, "rows time"], window: Window, fresh: bool) -> TextBatch:
    """What a window reads of some rows; targets are PAD where they are not scored."""
    targets = tokens[:, window.read_from + 1 : window.stop].clone()
    targets[:, : window.score_from - window.read_from - 1] = PAD
    return TextBatch(tokens[:, window.read_from : window.stop - 1], targets, fresh)
