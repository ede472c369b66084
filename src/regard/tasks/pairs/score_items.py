"""Score a sequence-to-sequence model item by item: the quality of each sentence, its length and its unknown words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.batch import UNKNOWN
from regard.data.example import Example
from regard.metrics.evaluation import METRICS, choose_unit
from regard.metrics.items import ItemCounts
from regard.metrics.sequences import to_units
from regard.metrics.significance import BOOTSTRAP_METRICS, Conditions
from regard.metrics.translation import has_four_words
from regard.tasks.built_in import describe_new_examples, is_built_in, sample_new_examples
from regard.tasks.item_scores import ItemScores
from regard.tasks.pairs.evaluate import VALIDATED_BY, EvaluatePairs
from regard.tasks.pairs.load import load_pair_split
from regard.tasks.pairs.predictor import PairPredictor
from regard.tasks.settings import get_split_seed


def score_pair_items(predictor: PairPredictor, test: str | None) -> ItemScores:
    """Translate test data and score every sentence; without a test file, use fresh examples or the validation part."""
    examples, part = load_test_examples(predictor, test)
    compose = predictor.tokenizers.target.steps.compose
    sources, targets = [example.source for example in examples], [compose(example.target) for example in examples]
    predictions = predictor.predict(sources)
    texts = [prediction.text for prediction in predictions]
    metric = choose_metric(predictor, targets)
    counts, _ = BOOTSTRAP_METRICS[metric](texts, targets, Conditions())
    spelled = [predictor.tokenizers.source.select_text(source) for source in sources]
    unit = choose_unit(spelled)
    items = ItemCounts(
        metric=metric,
        signature=METRICS[metric](texts, targets).signature,
        counts=counts.astype(np.float64),
        lengths=np.array([len(to_units(text, unit)) for text in spelled]),
        length_unit=f"source {unit}s",
        unknown=np.array([has_unknown(predictor, example) for example in examples]),
    )
    alignment = EvaluatePairs().score_alignment(predictor, examples)
    return ItemScores(
        part=part,
        items=items,
        curve=items,
        inputs=sources,
        outputs=texts,
        output_tokens=sum(len(prediction.pair.target or ()) for prediction in predictions),
        scores={} if alignment is None else {"alignment_error_rate": alignment.score.error_rate},
    )


def load_test_examples(predictor: PairPredictor, test: str | None) -> tuple[Sequence[Example], str]:
    """Return the examples to test on, and a description of them."""
    recipe = predictor.recipe
    if test is not None:
        return EvaluatePairs(data=test).load_examples(predictor), test
    if is_built_in(recipe.data.train, "pairs"):
        examples = sample_new_examples(recipe, recipe.data.train)
        return examples, describe_new_examples(recipe.data.train, examples)
    valid = load_pair_split(recipe.data, get_split_seed(recipe)).valid
    return valid, f"the {len(valid):,} validation pairs"


def choose_metric(predictor: PairPredictor, targets: Sequence[str]) -> str:
    """Return the metric that the run was validated with, or BLEU if it is meaningful, or exact match."""
    validated = VALIDATED_BY.get(predictor.recipe.training.metric)
    if validated in BOOTSTRAP_METRICS:
        return validated
    return "bleu" if has_four_words(targets) else "exact_match"


def has_unknown(predictor: PairPredictor, example: Example) -> bool:
    """Return whether a pair contains tokens that are not in the vocabulary."""
    tokenizers = predictor.tokenizers
    return UNKNOWN in tokenizers.source.encode(example.source) or UNKNOWN in tokenizers.target.encode(example.target)
