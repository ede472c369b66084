"""A fifth task, small but real: a number for a text, by attention pooling. It is this file and two rows of tables."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.batch import EOS, padded
from regard.data.batches import plan
from regard.data.formats import read_lines
from regard.errors import RegardError
from regard.explaining.explanation import ATTENTION
from regard.explaining.methods import Look as Looked
from regard.explaining.methods import Subject
from regard.layers.embedding import Call, Embedding
from regard.layers.pooling import Pooling
from regard.looking.options import LookOptions
from regard.models import Preset
from regard.models.model import Model
from regard.recipe import Recipe
from regard.tasks.actions import File, Invocation
from regard.tasks.actions.evaluate import Evaluate
from regard.tasks.actions.explain import Explain
from regard.tasks.actions.look import Look
from regard.tasks.actions.predict import PredictFromWords
from regard.tasks.base import Task
from regard.tasks.predictor import Predictor, Request
from regard.tasks.settings import DataSettings, TextSettings
from regard.text import Tokenizers, learn
from regard.training.defaults import choose_training
from regard.training.loop import Findings
from regard.training.loss import Loss, TrainingStep
from regard.training.prepared import Prepared
from regard.training.settings import TrainingSettings
from regard.views.attention_map import AttentionMap

# what it reads


class Rated(NamedTuple):
    """A text and its number."""

    text: str
    number: float


def read_rated(path: str) -> list[Rated]:
    examples = []
    for place, line in enumerate(read_lines(Path(path)), 1):
        text, _, number = line.rpartition("\t")
        try:
            examples.append(Rated(text, float(number)))
        except ValueError:
            raise RegardError(f"{path}, line {place}: found {number!r}; a number is needed") from None
    return examples


@dataclass(frozen=True, kw_only=True)
class NumberRecipe(Recipe):
    """All settings of a model that gives numbers."""

    data: DataSettings = field(default_factory=DataSettings)
    text: TextSettings = field(default_factory=TextSettings)
    model: dict[str, Any] = field(default_factory=dict)
    training: TrainingSettings = field(default_factory=TrainingSettings)


# the model


@dataclass(frozen=True, kw_only=True)
class NumberConfig:
    """Words, pooled by attention, and a number made of what was found."""

    source_size: int
    target_size: int
    width: int = 16  # of a word


class NumberModel(Model):
    """The number of a text."""

    def __init__(self, config: NumberConfig) -> None:
        super().__init__()
        self.config, self.attentions = config, {"pooling": ("pool.attention",)}
        self.words = Embedding(config.source_size, config.width)
        self.pool = Pooling("attention", config.width)
        self.output = nn.Linear(self.pool.width, 1)

    @property
    def input_embedding(self) -> nn.Module:
        return self.words

    def forward(self, batch: NumberBatch) -> Tensor:
        return self.output(self.pool(self.words(batch.ids), batch.lengths))[:, 0]


@dataclass(frozen=True)
class NumberBatch:
    """Texts side by side."""

    ids: Tensor
    lengths: Tensor
    numbers: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: Any) -> NumberBatch:
        numbers = None if self.numbers is None else self.numbers.to(device)
        return NumberBatch(self.ids.to(device), self.lengths.to(device), numbers)


def number_batch(tokenizers: Tokenizers, texts: Sequence[str], numbers: Sequence[float] | None = None) -> NumberBatch:
    ids, lengths = padded([tokenizers.source.encode(text) or [EOS] for text in texts])
    return NumberBatch(ids, lengths, None if numbers is None else torch.tensor(numbers))


# how it is trained


@dataclass(frozen=True)
class NumberBatches:
    examples: Sequence[Rated]
    tokenizers: Tokenizers
    tokens: int
    seed: int

    def plan(self, epoch: int) -> Sequence[Sequence[int]]:
        sizes = [(len(each.text.split()) + 1,) * 2 for each in self.examples]
        return plan(sizes, tokens=self.tokens, seed=self.seed, epoch=epoch).batches

    def batch(self, places: Sequence[int], epoch: int) -> NumberBatch:
        some = [self.examples[place] for place in places]
        return number_batch(self.tokenizers, [each.text for each in some], [each.number for each in some])

    def name(self, places: Sequence[int]) -> str:
        return f'of the text "{self.examples[places[0]].text}"'


class NumberStep(TrainingStep):
    def forward(self, batch: NumberBatch, carried: Any = ()) -> Loss:
        assert batch.numbers is not None
        loss = (self.model(batch) - batch.numbers).square().sum()
        return Loss(loss, torch.full_like(loss, len(batch), dtype=torch.long))


@dataclass(frozen=True)
class NumberValidation:
    examples: Sequence[Rated]
    tokenizers: Tokenizers
    device: str

    def __call__(self, model: nn.Module) -> Findings:
        batch = number_batch(self.tokenizers, [each.text for each in self.examples]).to(self.device)
        gold = torch.tensor([each.number for each in self.examples])
        return Findings({"loss": float((model(batch).cpu() - gold).square().mean())})


# what it answers


@dataclass(frozen=True, kw_only=True)
class NumberOptions:
    """How a number is written.

    Attributes:
        digits: Digits behind the point.
    """

    digits: int = 2


@dataclass(frozen=True)
class NumberRecord:
    """The number of a text, and the weights of its words."""

    text: str
    number: float
    words: list[str]
    weights: list[float] | None = None


@dataclass(frozen=True)
class Number:
    """The number of a text."""

    text: str
    number: float
    words: tuple[str, ...]
    weights: tuple[float, ...] | None = None

    def record(self) -> dict[str, Any]:
        record = {"text": self.text, "number": self.number, "words": self.words}
        return record if self.weights is None else {**record, "weights": self.weights}

    def lines(self, options: NumberOptions) -> list[str]:
        return [f"{self.number:.{options.digits}f}"]

    def shaded(self) -> list[Any]:
        return [(self.words, self.weights, f"{self.number:.2f}")]


class NumberPredictor(Predictor[Number]):
    """Gives a number to a text."""

    task_name = "number"
    weighs = True

    @property
    def summary(self) -> str:
        return "numbers"

    def subject(self, text: str, **further: Any) -> str:
        return text

    def check(self, options: NumberOptions) -> None:
        if not 0 <= options.digits <= 9:
            raise RegardError(f"digits is {options.digits}; a number from 0 to 9 is needed")

    def answer(
        self, requests: Sequence[Request], *, return_weights: bool = False, progress: Any = None
    ) -> list[Number]:
        answers = []
        for text, _ in requests:
            batch = number_batch(self.tokenizers, [text]).to(self.device)
            numbers, seen = self.watched(partial(self.model, batch))
            shares = tuple(seen["pooling"][0].dense().flatten().tolist()) if return_weights else None
            answers.append(Number(text, float(numbers[0]), tuple(text.split()) or ("",), shares))
        return answers

    def attention_map(self, answer: Number) -> AttentionMap:
        assert answer.weights is not None
        weights = np.array(answer.weights, np.float32)[None, None, None]
        return AttentionMap((f"{answer.number:.2f}",), answer.words, weights, self.name, "words")

    def look(self, text: str, options: LookOptions) -> AttentionMap:
        options.kind_of(self.name, self.model.attentions)
        (answer,) = self.answer([Request(text, NumberOptions())], return_weights=True)
        return self.attention_map(answer)

    def explain(self, text: str, options: Any) -> Subject:
        return NumberSubject(self, text)


class NumberSubject(Subject):
    """The number of a text, explained by its words; it takes the place of a log-probability."""

    def __init__(self, predictor: NumberPredictor, text: str) -> None:
        self.predictor, self.words = predictor, tuple(text.split())
        self.size, self.embedding = len(self.words), predictor.model.input_embedding
        self.without_attention = ""

    def log_probabilities(self, without: Sequence[int | None]) -> Tensor:
        texts = [" ".join(word for place, word in enumerate(self.words) if place != out) for out in without]
        return self.predictor.model(number_batch(self.predictor.tokenizers, texts).to(self.predictor.device))

    def looks(self) -> dict[str, Looked]:
        (answer,) = self.predictor.answer([Request(" ".join(self.words), NumberOptions())], return_weights=True)
        return {ATTENTION: Looked(np.array(answer.weights))}

    def merged(self, calls: Sequence[Call], numbers: Sequence[Tensor]) -> list[float]:
        found: list[float] = numbers[0][0].tolist()
        return found

    def described(self, log_probability: float) -> str:
        return f"the number {log_probability:.2f}"


# its commands


@dataclass(frozen=True, kw_only=True)
class PredictNumbers(PredictFromWords, NumberOptions):
    """Write the number of each line."""


@dataclass(frozen=True)
class NumberReport:
    error: float

    def lines(self) -> list[str]:
        return [f"mean absolute error {self.error:.3f}"]

    def to_json(self) -> dict[str, Any]:
        return {"mean_absolute_error": self.error}


@dataclass(frozen=True, kw_only=True)
class EvaluateNumbers(Evaluate):
    """Score numbers.

    Attributes:
        rated: A file of texts and numbers.
    """

    rated: File | None = None

    def report(self, predictor: NumberPredictor, given: Invocation) -> NumberReport:
        examples = read_rated(str(self.rated))
        answers = predictor.answer([Request(each.text, NumberOptions()) for each in examples])
        apart = [abs(found.number - each.number) for found, each in zip(answers, examples, strict=True)]
        return NumberReport(sum(apart) / len(apart))


@dataclass(frozen=True, kw_only=True)
class LookAtNumber(Look):
    """Show which words a number comes from."""


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """Nothing."""


@dataclass(frozen=True, kw_only=True)
class ExplainNumber(Explain, NoOptions):
    """Show how much each word mattered for a number."""


class NumberTask(Task):
    """To give a number to a text."""

    name = "number"
    does = "rates texts"
    reads = "a file of texts and numbers"
    example = "regard train ratings.rated --out runs/ratings"
    next_step = "predict {run} < texts.txt"
    recipe = NumberRecipe
    presets = ("attentive-number",)
    unit = "text"
    batch_unit = "word"
    learnt_unit = "text"
    options: ClassVar[Mapping[str, type]] = {"request": NumberOptions, "look": LookOptions, "explain": NoOptions}
    actions: ClassVar[Mapping[str, Any]] = {
        "predict": PredictNumbers,
        "evaluate": EvaluateNumbers,
        "look": LookAtNumber,
        "explain": ExplainNumber,
    }
    record = NumberRecord

    def claims(self, data: Mapping[str, Any]) -> bool:
        return str(data.get("train", "")).endswith(".rated")

    def prepare(self, recipe: NumberRecipe, run: Any, home: Any, device: str, talk: Any) -> Prepared:
        recipe.data.check_given("a file of texts and numbers")
        examples = read_rated(str(recipe.data.train))
        random.Random(recipe.training.seed).shuffle(examples)
        held = max(1, round(len(examples) * recipe.data.held_out))
        train, valid = examples[held:], examples[:held]
        talk.say(f"data: {len(train)} texts to train on, {len(valid)} to validate with")
        tokenizer = learn("words", [each.text for each in train])
        tokenizers = Tokenizers(tokenizer, tokenizer) if home is None else self.load_tokenizers(home)
        size = sum(len(each.text.split()) for each in train)
        training = choose_training(
            recipe.training,
            size,
            tokens=200,
            steps=lambda epoch: 60 * epoch,
            warmup=10,
            validate_every=lambda epoch, steps: max(1, steps // 4),
            rate=0.02,
            smoothing=0.0,
            metric="loss",
            precision="float32",
        )
        recipe = replace(recipe, training=training, model={"name": "attentive-number", **recipe.model})
        batches = NumberBatches(train, tokenizers, training.tokens or 0, training.seed)
        return Prepared(
            recipe=recipe,
            tokenizers=tokenizers,
            batches=batches,
            validate=NumberValidation(valid, tokenizers, device),
            step=NumberStep,
            first=batches.batch(batches.plan(0)[0], 0),
            data={
                "origin": recipe.data.train,
                "train": len(train),
                "valid": len(valid),
                "sha256": hashlib.sha256(str(examples).encode()).hexdigest(),
            },
            each="words",
            amount=f"{len(batches.plan(0))} an epoch",
        )

    def predictor_class(self) -> type[NumberPredictor]:
        return NumberPredictor

    def describe_vocabulary(self, table: Any, run: Any) -> str:
        return f"words: {table['source']:,}"


ROW_OF_TASKS = {"number": NumberTask()}
ROW_OF_MODELS = {"attentive-number": Preset(NumberModel, NumberConfig, {}, "number")}
