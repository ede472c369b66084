"""Settings of the task pairs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from regard.bounds import Length, PositiveCount, Share, check_bounds
from regard.errors import RegardError
from regard.recipe import Recipe
from regard.settings import format_value, setting
from regard.tasks.pairs.options import BeamBounds, LengthPenaltyBounds
from regard.tasks.settings import DataSettings, Kind, TextSettings
from regard.training.settings import TrainingSettings

NormalFormChoice = Literal["auto", "none", "nfc", "nfd", "nfkc", "nfkd"]


@dataclass(frozen=True, kw_only=True)
class PairData(DataSettings):
    """Settings of the data."""

    source: str | None = setting(None, "path", "origin", "may_change")  # file of sources, one per line, with --target
    target: str | None = setting(None, "path", "may_change")  # file of targets, one per line
    validation_source: str | None = setting(None, "path", "may_change")  # file of validation sources
    validation_target: str | None = setting(None, "path", "may_change")  # file of validation targets
    format: str | None = None  # file format: tmx, po, mo, tsv, csv, jsonl, g2p, unimorph or sigmorphon2016 to 2023
    columns: tuple[str, ...] = setting(
        (), "from_data"
    )  # columns, keys or languages of source and target; join columns with +, as in lemma+features,form
    on_empty: Literal["error", "skip"] = "error"  # what to do with a pair or example with an empty part
    max_tokens: Length = 256  # skip pairs with more tokens than this on either side

    @property
    def has_validation(self) -> bool:
        return self.validation is not None or self.validation_source is not None


@dataclass(frozen=True, kw_only=True)
class PairText(TextSettings):
    """Settings of preprocessing and tokenization."""

    source_tokenizer: Kind = "auto"  # tokenizer of the source (default: --tokenizer)
    target_tokenizer: Kind = "auto"  # tokenizer of the target (default: --tokenizer)
    shared_vocab: bool | Literal["auto"] = "auto"  # one vocabulary for both sides; auto: if they share most words
    normal_form: NormalFormChoice = "auto"  # Unicode normal form of the tokens; nfd takes characters apart
    source_normal_form: NormalFormChoice = "auto"  # normal form of the source (default: --normal-form)
    target_normal_form: NormalFormChoice = "auto"  # normal form of the target (default: --normal-form)
    lowercase: bool = False  # lowercase all text
    moses_source: str | None = None  # language of the source (de, en, ...), to normalize and tokenize it as Moses does
    moses_target: str | None = None  # language of the target, to normalize and tokenize it as Moses does
    hide: Share = 0.02  # with model.copy, probability of making a token unknown in training, to learn to copy new ones
    bpe_dropout: Share = 0.0  # probability of skipping a BPE merge in training; makes batches larger than planned

    @property
    def tokenizers(self) -> tuple[Kind, Kind]:
        """The kind of tokens of each side."""
        source, target = self.source_tokenizer, self.target_tokenizer
        return (self.tokenizer if source == "auto" else source), (self.tokenizer if target == "auto" else target)

    @property
    def normal_forms(self) -> tuple[NormalFormChoice, NormalFormChoice]:
        """The normal form of each side."""
        source, target = self.source_normal_form, self.target_normal_form
        return (self.normal_form if source == "auto" else source), (self.normal_form if target == "auto" else target)


@dataclass(frozen=True, kw_only=True)
class PairTraining(TrainingSettings):
    """Settings of training."""

    max_validation: PositiveCount = setting(1000, "may_change")  # number of examples to decode in each validation


@dataclass(frozen=True, kw_only=True)
class DecodingSettings:
    """Defaults of `regard predict`."""

    beam: Annotated[int, BeamBounds] = 5  # beam size; 1 for greedy search
    length_penalty: Annotated[float, LengthPenaltyBounds] = 1.0  # length penalty; 0 favors short targets

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, kw_only=True)
class PairRecipe(Recipe):
    """All settings of a sequence-to-sequence model."""

    data: PairData = field(default_factory=PairData)  # data files
    text: PairText = field(default_factory=PairText)  # preprocessing and tokenization
    model: dict[str, Any] = field(default_factory=dict)
    training: PairTraining = field(default_factory=PairTraining)  # settings without a default are chosen from the data
    decoding: DecodingSettings = field(default_factory=DecodingSettings)  # defaults of regard predict

    def __post_init__(self) -> None:
        if self.ties_vocabularies and self.text.shared_vocab is False:
            tied = format_value(self.model["tied"])
            raise RegardError(f"model.tied = {tied} requires a shared vocabulary; remove text.shared_vocab = false")

    @property
    def ties_vocabularies(self) -> bool:
        """Whether the model has one embedding for both sides, so that their ids must mean the same tokens."""
        return self.model.get("tied") in (True, "all")
