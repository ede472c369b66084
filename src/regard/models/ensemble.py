"""Ensembles: several trained models of the same tokens as one model, whose probabilities are averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.batch import UNKNOWN, Batch
from regard.errors import RegardError
from regard.models.attentive_classifier import AttentiveClassifier, ClassifierConfig
from regard.models.attentive_tagger import AttentiveTagger, TaggerConfig
from regard.models.features import Features
from regard.models.language_model import LanguageModel, SegmentState
from regard.models.model import Model
from regard.models.seq2seq import Seq2Seq
from regard.models.state import State
from regard.models.text_encoder import TextEncoder
from regard.sentences import LabelBatch, TagBatch

FIRST = "members.0"
"""Path of the member whose attention is that of the ensemble."""


def build_ensemble(members: Sequence[Model]) -> Model:
    """Return models of one task as one model, for prediction only.

    The attention of an ensemble is that of its first member.

    Raises:
        RegardError: There are no members, or they differ in what they read or predict.
    """
    if not members:
        raise RegardError("ensemble: expected at least one model, got none")
    kinds: list[tuple[Any, type[Ensemble]]] = [
        (Seq2Seq, Seq2SeqEnsemble),
        (LanguageModel, LanguageModelEnsemble),
        (AttentiveClassifier, ClassifierEnsemble),
        (AttentiveTagger, TaggerEnsemble),
    ]
    for kind, ensemble in kinds:
        if all(isinstance(member, kind) for member in members):
            return ensemble(members)
    names = " and ".join(dict.fromkeys(type(member).__name__ for member in members))
    raise RegardError(f"ensemble: expected models of one task that can be combined, got {names}")


def mean_log_probabilities(logits: Sequence[Float[Tensor, "*places some"]]) -> Float[Tensor, "*places some"]:
    """Return the logarithm of the mean probability; the logits of a single member stay as they are."""
    if len(logits) == 1:
        return logits[0]
    dtype = torch.promote_types(logits[0].dtype, torch.float32)
    return torch.stack([each.log_softmax(-1, dtype=dtype) for each in logits]).logsumexp(0) - math.log(len(logits))


class EnsembleState:
    """The states of all members between decoding steps."""

    def __init__(self, states: Sequence[State]) -> None:
        self.states = list(states)

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Reorder the hypotheses of all members in place."""
        for state in self.states:
            state.select(rows)


class Ensemble(Model):
    """What all ensembles share: the members, and the attention of the first."""

    def __init__(self, members: Sequence[Model]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        first = members[0]
        self.attentions = {kind: tuple(f"{FIRST}.{path}" for path in paths) for kind, paths in first.attentions.items()}
        self.residual_attentions = first.residual_attentions
        self.max_length = min((each.max_length for each in members if each.max_length is not None), default=None)
        self.eval()

    @property
    def input_embedding(self) -> nn.Module:
        return cast(Model, self.members[0]).input_embedding


@dataclass(frozen=True, eq=False)
class EnsembleFeatures(Features):
    """The features of all members, indexed together."""

    members: tuple[Tensor | Features, ...]

    def __getitem__(self, index: Any) -> EnsembleFeatures:
        return EnsembleFeatures(tuple(each[index] for each in self.members))

    def __len__(self) -> int:
        return len(self.members[0])


class StepEnsemble(Ensemble):
    """Models that write one token at a time: their probabilities are averaged at every step."""

    def step(self, tokens: Int[Tensor, " rows"], state: State) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        """Read one token of each hypothesis; return the logarithm of the mean probability of each next token."""
        assert isinstance(state, EnsembleState)
        steps = [member.step(tokens, each) for member, each in zip(self.generators, state.states, strict=True)]
        return mean_log_probabilities([logits for logits, _ in steps]), EnsembleState([after for _, after in steps])

    @property
    def device(self) -> torch.device:
        """The device of the members."""
        return next(self.parameters(), torch.empty(0)).device

    @property
    def generators(self) -> list[Any]:
        """The members, as models with `start`, `step` and `output`."""
        return list(self.members)


class Seq2SeqEnsemble(StepEnsemble, Seq2Seq):
    """Sequence-to-sequence models, averaged step by step."""

    def __init__(self, members: Sequence[Model]) -> None:
        super().__init__(members)
        self.reverses_source = self.generators[0].reverses_source
        self.copies = self.generators[0].copies
        if any(member.copies != self.copies for member in self.generators):
            raise RegardError("ensemble: models that copy and models that do not cannot be combined")

    def features(self, batch: Batch) -> EnsembleFeatures:
        return EnsembleFeatures(tuple(member.features(batch) for member in self.generators))

    def output(self, features: Float[Tensor, "*places width"] | Features) -> Float[Tensor, "*places vocabulary"]:
        """Return the logarithm of the mean probability of each next token."""
        assert isinstance(features, EnsembleFeatures)
        members = zip(self.generators, features.members, strict=True)
        return mean_log_probabilities([member.output(each) for member, each in members])

    def start(self, batch: Batch, capacity: int, copies: int = 1) -> State:
        return EnsembleState([member.start(batch, capacity, copies) for member in self.generators])


class LanguageModelEnsemble(StepEnsemble, LanguageModel):
    """Language models, averaged token by token; the features are those of all members, one after the other."""

    def __init__(self, members: Sequence[Model]) -> None:
        super().__init__(members)
        if len({member.stateful for member in self.generators}) > 1:
            raise RegardError("ensemble: recurrent models and models of a fixed context cannot be combined")
        self.stateful = self.generators[0].stateful
        with torch.no_grad():
            token = torch.full((1, 1), UNKNOWN, device=self.device)
            read = [member.read(token) for member in self.generators]
        self.widths = [features.shape[-1] for features, _ in read]
        self.state_sizes = [len(segment_state) for _, segment_state in read]

    def read(
        self, tokens: Int[Tensor, "rows time"], segment_state: SegmentState | None = None
    ) -> tuple[Float[Tensor, "rows time width"], SegmentState]:
        states = self._split_state(segment_state)
        read = [member.read(tokens, state) for member, state in zip(self.generators, states, strict=True)]
        return torch.cat([features for features, _ in read], -1), tuple(each for _, state in read for each in state)

    def output(self, features: Float[Tensor, "*places width"]) -> Float[Tensor, "*places vocabulary"]:
        """Return the logarithm of the mean probability of each next token."""
        members = zip(self.generators, features.split(self.widths, -1), strict=True)
        return mean_log_probabilities([member.output(part) for member, part in members])

    def start(self, tokens: Int[Tensor, "rows time"], capacity: int, copies: int = 1) -> State:
        return EnsembleState([member.start(tokens, capacity, copies) for member in self.generators])

    def _split_state(self, segment_state: SegmentState | None) -> list[SegmentState | None]:
        """Return the part of each member of a segment state."""
        if segment_state is None:
            return [None] * len(self.state_sizes)
        ends = [sum(self.state_sizes[: index + 1]) for index in range(len(self.state_sizes))]
        return [segment_state[end - size : end] for end, size in zip(ends, self.state_sizes, strict=True)]


class WordEnsemble(Ensemble):
    """Models that read words: classifiers and taggers."""

    def _check_same(self, *names: str) -> None:
        """Raise a `RegardError` if the members differ in a setting."""
        for name in names:
            values = {getattr(member.config, name) for member in self.members}
            if len(values) > 1:
                raise RegardError(f"ensemble: the models differ in {name}")

    @property
    def reader(self) -> TextEncoder:
        """The text encoder whose attention is shown."""
        return cast(TextEncoder, self.members[0].reader)


class ClassifierEnsemble(WordEnsemble):
    """Classifiers, whose probabilities are averaged; so are their thresholds."""

    context_attention = f"{FIRST}.{AttentiveClassifier.context_attention}"

    def __init__(self, members: Sequence[Model]) -> None:
        super().__init__(members)
        self._check_same("labels", "multi_label", "text_pairs", "context_size")
        self.config = cast(ClassifierConfig, self.members[0].config)

    @property
    def threshold(self) -> Float[Tensor, ""]:
        """The mean of the thresholds."""
        return torch.stack([cast(Tensor, member.threshold) for member in self.members]).mean()

    def forward(self, batch: LabelBatch) -> Float[Tensor, "examples labels"]:
        """Return the mean probability of each label."""
        classifiers = cast(list[AttentiveClassifier], list(self.members))
        return torch.stack([member.probabilities(member(batch).float()) for member in classifiers]).mean(0)

    def probabilities(self, mean: Float[Tensor, "examples labels"]) -> Float[Tensor, "examples labels"]:
        """Return what `forward` returned."""
        return mean


class TaggerEnsemble(WordEnsemble):
    """Taggers, whose scores are averaged: those of tags and those of transitions.

    The probability of a sequence of tags is thus the geometric mean of those of the members, normalized, and the best
    sequence follows the tagging scheme.
    """

    def __init__(self, members: Sequence[Model]) -> None:
        super().__init__(members)
        self._check_same("labels", "scheme")
        taggers = cast(list[AttentiveTagger], list(self.members))
        self.config: TaggerConfig = taggers[0].config
        self.crf = deepcopy(taggers[0].crf)
        parameters: Mapping[str, Tensor] = dict(self.crf.named_parameters())
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(torch.stack([tagger.crf.get_parameter(name) for tagger in taggers]).mean(0))

    def forward(self, batch: TagBatch) -> Float[Tensor, "texts words tags"]:
        """Return the mean score of each tag at each word."""
        return torch.stack([member(batch) for member in self.members]).mean(0)

    def decode(self, scores: Float[Tensor, "texts words tags"], batch: TagBatch) -> Int[Tensor, "texts words"]:
        """Return the most probable sequence of tags (Viterbi)."""
        return self.crf.decode(scores.float(), batch.sentences.lengths)[0]

    def probabilities(
        self, scores: Float[Tensor, "texts words tags"], batch: TagBatch
    ) -> Float[Tensor, "texts words tags"]:
        """Return the marginal probability of each tag at each word."""
        return self.crf.marginals(scores.float(), batch.sentences.lengths)
