"""What `regard.load` gives for a language model: text that goes on, and how much a text surprises the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import BOS, EOS, PAD, TextBatch, padded
from regard.data.batches import plan
from regard.data.segments import Window, evaluation_windows
from regard.decoding.generate import continuations, generate, generate_whole, text_weights
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.reading import read_on
from regard.errors import RegardError
from regard.models.language import LanguageModel
from regard.predictor import as_texts
from regard.recipe import Recipe
from regard.run import Card
from regard.text import Tokenizers
from regard.text.streaming import written_parts

if TYPE_CHECKING:
    from regard.views.attention_map import AttentionMap

BEGIN, END = "<bos>", "<eos>"
TOKENS, SEGMENT = 8192, 2048
"""Places of a batch, and tokens of a row that are read at once where a model can carry on."""

MOST_TOKENS = 1_000_000
"""That can be asked for; more are hardly meant."""


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


class Drawing(TypedDict, total=False):
    """How the next token is drawn."""

    temperature: float
    top_k: int | None
    top_p: float | None
    greedy: bool


class Options(Drawing, total=False):
    """What `TextPredictor.generate` can be told, and describes."""

    tokens: int
    seed: int | None
    return_weights: bool


class TextPredictor:
    """A trained language model with its tokenizer."""

    def __init__(
        self,
        model: LanguageModel,
        tokenizers: Tokenizers,
        recipe: Recipe,
        card: Card,
        device: str | torch.device = "cpu",
    ) -> None:
        self.model = model.to(device).eval()
        self.tokenizer = tokenizers.target
        self.recipe, self.card, self.device = recipe, card, str(device)

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return f"TextPredictor({self.name}, {self.tokenizer.kind}, {parameters:,} parameters, on {self.device})"

    @property
    def name(self) -> str:
        """The preset of the model."""
        return str(self.recipe.model["name"])

    @overload
    def generate(self, prompts: str = ..., **options: Unpack[Options]) -> Text: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def generate(self, prompts: Sequence[str], **options: Unpack[Options]) -> list[Text]: ...
    def generate(
        self,
        prompts: Any = "",
        *,
        tokens: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        greedy: bool = False,
        seed: int | None = None,
        return_weights: bool = False,
    ) -> Text | list[Text]:
        """Go on with a prompt, or with each of several.

        Args:
            prompts: What comes before; nothing is the beginning of a document.
            tokens: How many to write at the most; the model may end its text before.
            temperature: What logits are divided by; below 1 the probable becomes more probable.
            top_k: Draw from so many most probable tokens only.
            top_p: Draw only from the fewest most probable tokens that have this share together.
            greedy: Always take the most probable token.
            seed: The same seed, prompt and settings give the same text.
            return_weights: Also give the attention over prompt and text.
        """
        options: Drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "greedy": greedy}
        several = as_texts("generate", prompts)
        beginnings = [self._begun(prompt, tokens, return_weights) for prompt in several]
        found = []
        for prompt, begun in zip(several, beginnings, strict=True):
            generator = new_generator(self.device, seed)
            best = generate_whole(self.model, begun, tokens=tokens, generator=generator, **options)[0]
            found.append(self._text(prompt, begun, best, return_weights))
        return found[0] if isinstance(prompts, str) else found

    def stream(
        self,
        prompt: str = "",
        *,
        tokens: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        greedy: bool = False,
        seed: int | None = None,
    ) -> Iterator[str]:
        """What `generate` writes, in parts, each as soon as it is written."""
        found = generate(
            self.model,
            self._begun(prompt, tokens),
            tokens=tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            greedy=greedy,
            generator=new_generator(self.device, seed),
        )
        return written_parts(self.tokenizer, (int(token) for token in found), prompt)

    def continuations(
        self, prompt: str = "", *, tokens: int = 50, beam: int = 5, nbest: int = 1, return_weights: bool = False
    ) -> list[Text]:
        """The most probable texts that a beam finds, best first."""
        begun = self._begun(prompt, tokens, return_weights)
        found = continuations(self.model, begun, tokens=tokens, beam=beam, nbest=nbest)[0]
        return [self._text(prompt, begun, each, return_weights) for each in found]

    @overload
    def read(self, texts: str) -> Reading: ...  # type: ignore[overload-overlap]
    @overload  # a str is a sequence of str, too
    def read(self, texts: Sequence[str], progress: Callable[[int], object] | None = ...) -> list[Reading]: ...
    def read(self, texts: Any, progress: Callable[[int], object] | None = None) -> Reading | list[Reading]:
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

    def attention_map(self, text: Text) -> AttentionMap:
        """The weights of a text as a record that every view draws."""
        from regard.views.attention_map import AttentionMap

        if not isinstance(text, Text):
            raise RegardError(f"attention_map: found {type(text).__name__}; one Text is needed")
        if text.weights is None:
            raise RegardError("attention_map: the text has no weights; generate it with return_weights=True")
        title = f"{self.name}: {text.prompt}{text.text}"
        return AttentionMap(text.tokens, text.tokens, text.weights.numpy(), title, "tokens")

    def check_attention(self) -> None:
        """Raise a `RegardError` if the model has no attention to show."""
        if not self.model.attended:
            raise RegardError(f"{self.name}: this model has no attention, so no weights to show")

    def _begun(self, prompt: str, tokens: int, return_weights: bool = False) -> Int[Tensor, "1 time"]:
        """<bos> and the prompt, as one row; what cannot be done with it is said at once."""
        if not isinstance(prompt, str):
            raise RegardError(f"generate: found {type(prompt).__name__}; a prompt is a text")
        if not 1 <= tokens <= MOST_TOKENS:
            raise RegardError(f"generate: tokens is {tokens}; a number from 1 to {MOST_TOKENS} is needed")
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

    def _text(self, prompt: str, begun: Int[Tensor, "1 time"], found: Hypothesis, return_weights: bool) -> Text:
        """A hypothesis as text."""
        ids = (*begun[0].tolist(), *found.target)
        text = "".join(written_parts(self.tokenizer, found.target, prompt))
        shown = (BEGIN, *self.tokenizer.tokens_of(ids[1:]))
        whole = Text(prompt, text, found.log_probability, found.ended, shown, ids)
        if not return_weights:
            return whole
        weights = text_weights(self.model, torch.tensor([ids], device=self.device))[0]
        return replace(whole, weights=weights.float().cpu())

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


def new_generator(device: str, seed: int | None) -> torch.Generator:
    """Random numbers from a seed, or from none that anyone knows."""
    if seed is not None and not (isinstance(seed, int) and 0 <= seed < 2**32):
        raise RegardError(f"generate: seed is {seed!r}; a number from 0 to {2**32 - 1} is needed")
    generator = torch.Generator(device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator
