"""A small fifth task: predict a number for a text by attention pooling. It is this file and two table rows."""

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

from regard.attribution.explanation import ATTENTION
from regard.attribution.methods import AttentionShares, Subject
from regard.batch import EOS, pad_rows
from regard.data.batches import plan_epoch
from regard.data.formats import read_lines
from regard.errors import RegardError
from regard.layers.embedding import Embedding, EmbeddingCall
from regard.layers.pooling import Pooling
from regard.maps.options import LookOptions
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
from regard.text import TokenizerPair, learn_tokenizer
from regard.training.defaults import choose_training
from regard.training.loop import ValidationResult
from regard.training.loss import Loss, TrainingStep
from regard.training.prepared import Prepared
from regard.training.settings import TrainingSettings
from regard.views.attention_map import AttentionMap

# data


class Rated(NamedTuple):
    """A text and its number."""

    text: str
    number: float


def read_rated(path: str) -> list[Rated]:
    examples = []
    for line_number, line in enumerate(read_lines(Path(path)), 1):
        text, _, number = line.rpartition("\t")
        try:
            examples.append(Rated(text, float(number)))
        except ValueError:
            raise RegardError(f"{path}, line {line_number}: expected a number, got {number!r}") from None
    return examples


@dataclass(frozen=True, kw_only=True)
class NumberRecipe(Recipe):
    """All settings of a model that predicts numbers."""

    data: DataSettings = field(default_factory=DataSettings)
    text: TextSettings = field(default_factory=TextSettings)
    model: dict[str, Any] = field(default_factory=dict)
    training: TrainingSettings = field(default_factory=TrainingSettings)


# model


@dataclass(frozen=True, kw_only=True)
class NumberConfig:
    """Word embeddings, pooled by attention, and a linear output."""

    source_vocab_size: int
    target_vocab_size: int
    width: int = 16  # size of a word embedding


class NumberModel(Model):
    """Predicts the number of a text."""

    def __init__(self, config: NumberConfig) -> None:
        super().__init__()
        self.config, self.attentions = config, {"pooling": ("pool.attention",)}
        self.words = Embedding(config.source_vocab_size, config.width)
        self.pool = Pooling("attention", config.width)
        self.output = nn.Linear(self.pool.width, 1)

    @property
    def input_embedding(self) -> nn.Module:
        return self.words

    def forward(self, batch: NumberBatch) -> Tensor:
        return self.output(self.pool(self.words(batch.ids), batch.lengths))[:, 0]


@dataclass(frozen=True)
class NumberBatch:
    """A batch of padded texts and, in training, their numbers."""

    ids: Tensor
    lengths: Tensor
    numbers: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: Any) -> NumberBatch:
        numbers = None if self.numbers is None else self.numbers.to(device)
        return NumberBatch(self.ids.to(device), self.lengths.to(device), numbers)


def number_batch(
    tokenizers: TokenizerPair, texts: Sequence[str], numbers: Sequence[float] | None = None
) -> NumberBatch:
    ids, lengths = pad_rows([tokenizers.source.encode(text) or [EOS] for text in texts])
    return NumberBatch(ids, lengths, None if numbers is None else torch.tensor(numbers))


# training


@dataclass(frozen=True)
class NumberBatches:
    examples: Sequence[Rated]
    tokenizers: TokenizerPair
    tokens: int
    seed: int

    def plan(self, epoch: int) -> Sequence[Sequence[int]]:
        sizes = [(len(example.text.split()) + 1,) * 2 for example in self.examples]
        return plan_epoch(sizes, batch_tokens=self.tokens, seed=self.seed, epoch=epoch).batches

    def batch(self, indices: Sequence[int], epoch: int) -> NumberBatch:
        examples = [self.examples[index] for index in indices]
        texts, numbers = zip(*examples, strict=True)
        return number_batch(self.tokenizers, texts, numbers)

    def name(self, indices: Sequence[int]) -> str:
        return f'of the text "{self.examples[indices[0]].text}"'


class NumberStep(TrainingStep):
    def forward(self, batch: NumberBatch, recurrent_state: Any = ()) -> Loss:
        assert batch.numbers is not None
        loss = (self.model(batch) - batch.numbers).square().sum()
        return Loss(loss, torch.full_like(loss, len(batch), dtype=torch.long))


@dataclass(frozen=True)
class NumberValidation:
    examples: Sequence[Rated]
    tokenizers: TokenizerPair
    device: str

    def __call__(self, model: nn.Module) -> ValidationResult:
        batch = number_batch(self.tokenizers, [example.text for example in self.examples]).to(self.device)
        gold = torch.tensor([example.number for example in self.examples])
        return ValidationResult({"loss": float((model(batch).cpu() - gold).square().mean())})


# prediction


@dataclass(frozen=True, kw_only=True)
class NumberOptions:
    """Options of a prediction.

    Attributes:
        digits: Number of decimal places.
    """

    digits: int = 2


@dataclass(frozen=True)
class NumberRecord:
    """JSON schema of a prediction."""

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

    def shaded_words(self) -> list[Any]:
        return [(self.words, self.weights, f"{self.number:.2f}")]


class NumberPredictor(Predictor[Number]):
    """A trained model that predicts numbers."""

    task_name = "number"
    has_word_weights = True

    @property
    def summary(self) -> str:
        return "numbers"

    def build_input(self, text: str, **further: Any) -> str:
        return text

    def check(self, options: NumberOptions) -> None:
        if not 0 <= options.digits <= 9:
            raise RegardError(f"digits must be from 0 to 9, got {options.digits}")

    def answer(
        self, requests: Sequence[Request], *, return_weights: bool = False, progress: Any = None
    ) -> list[Number]:
        answers = []
        for text, _ in requests:
            batch = number_batch(self.tokenizers, [text]).to(self.device)
            numbers, weights = self.run_watched(partial(self.model, batch))
            shares = tuple(weights["pooling"][0].dense().flatten().tolist()) if return_weights else None
            answers.append(Number(text, float(numbers[0]), tuple(text.split()) or ("",), shares))
        return answers

    def attention_map(self, answer: Number) -> AttentionMap:
        assert answer.weights is not None
        weights = np.array(answer.weights, np.float32)[None, None, None]
        return AttentionMap((f"{answer.number:.2f}",), answer.words, weights, self.name, "words")

    def build_map(self, text: str, options: LookOptions) -> AttentionMap:
        options.resolve_kind(self.name, self.model.attentions)
        (answer,) = self.answer([Request(text, NumberOptions())], return_weights=True)
        return self.attention_map(answer)

    def build_subject(self, text: str, options: Any) -> Subject:
        return NumberSubject(self, text)


class NumberSubject(Subject):
    """The number of a text, explained by its words; it is used as the log-probability."""

    def __init__(self, predictor: NumberPredictor, text: str) -> None:
        self.predictor, self.words = predictor, tuple(text.split())
        self.size, self.embedding = len(self.words), predictor.model.input_embedding
        self.without_attention = ""

    def log_probabilities(self, without: Sequence[int | None]) -> Tensor:
        texts = [" ".join(word for index, word in enumerate(self.words) if index != omitted) for omitted in without]
        return self.predictor.model(number_batch(self.predictor.tokenizers, texts).to(self.predictor.device))

    def compute_attention(self) -> dict[str, AttentionShares]:
        (answer,) = self.predictor.answer([Request(" ".join(self.words), NumberOptions())], return_weights=True)
        return {ATTENTION: AttentionShares(np.array(answer.weights))}

    def merge_by_word(self, calls: Sequence[EmbeddingCall], numbers: Sequence[Tensor]) -> list[float]:
        values: list[float] = numbers[0][0].tolist()
        return values

    def describe(self, log_probability: float) -> str:
        return f"the number {log_probability:.2f}"


# commands


@dataclass(frozen=True, kw_only=True)
class PredictNumbers(PredictFromWords, NumberOptions):
    """Predict a number for each line."""


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
        rated: File of texts and numbers.
    """

    rated: File | None = None

    def build_report(self, predictor: NumberPredictor, invocation: Invocation) -> NumberReport:
        examples = read_rated(str(self.rated))
        answers = predictor.answer([Request(example.text, NumberOptions()) for example in examples])
        errors = [abs(answer.number - example.number) for answer, example in zip(answers, examples, strict=True)]
        return NumberReport(sum(errors) / len(errors))


@dataclass(frozen=True, kw_only=True)
class LookAtNumber(Look):
    """Show the attention of a model that predicts numbers."""


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """No options."""


@dataclass(frozen=True, kw_only=True)
class ExplainNumber(Explain, NoOptions):
    """Show how much each word mattered for a number."""


class NumberTask(Task):
    """Regression: predict a number for a text."""

    name = "number"
    description = "regression model"
    data_help = "a file of texts and numbers"
    example = "regard train ratings.rated --out runs/ratings"
    next_command = "predict {run} < texts.txt"
    recipe = NumberRecipe
    presets = ("attentive-number",)
    unit = "text"
    batch_unit = "word"
    learned_unit = "text"
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

    def prepare(self, recipe: NumberRecipe, run: Any, existing_run: Any, device: str, reporter: Any) -> Prepared:
        recipe.data.check_train_given("a file of texts and numbers")
        examples = read_rated(str(recipe.data.train))
        random.Random(recipe.training.seed).shuffle(examples)
        valid_count = max(1, round(len(examples) * recipe.data.validation_share))
        train, valid = examples[valid_count:], examples[:valid_count]
        reporter.info(f"data: {len(train)} texts to train on, {len(valid)} to validate with")
        tokenizer = learn_tokenizer("words", [example.text for example in train])
        tokenizers = TokenizerPair(tokenizer, tokenizer) if existing_run is None else self.load_tokenizers(existing_run)
        size = sum(len(example.text.split()) for example in train)
        training = choose_training(
            recipe.training,
            size,
            batch_tokens=200,
            steps=lambda epoch: 60 * epoch,
            warmup_steps=10,
            validate_every=lambda epoch, steps: max(1, steps // 4),
            learning_rate=0.02,
            label_smoothing=0.0,
            metric="loss",
            precision="float32",
        )
        recipe = replace(recipe, training=training, model={"name": "attentive-number", **recipe.model})
        batches = NumberBatches(train, tokenizers, training.batch_tokens or 0, training.seed)
        return Prepared(
            recipe=recipe,
            tokenizers=tokenizers,
            batches=batches,
            validate=NumberValidation(valid, tokenizers, device),
            step=NumberStep,
            first_batch=batches.batch(batches.plan(0)[0], 0),
            data={
                "origin": recipe.data.train,
                "train": len(train),
                "validation": len(valid),
                "sha256": hashlib.sha256(str(examples).encode()).hexdigest(),
            },
            batch_unit="words",
            summary=f"{len(batches.plan(0))} per epoch",
        )

    def get_predictor_class(self) -> type[NumberPredictor]:
        return NumberPredictor

    def describe_vocabulary(self, table: Any, run: Any) -> str:
        return f"vocabulary: {table['source']:,} words"


ROW_OF_TASKS = {"number": NumberTask()}
ROW_OF_MODELS = {"attentive-number": Preset(NumberModel, NumberConfig, {}, "number")}
