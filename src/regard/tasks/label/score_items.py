"""Score a classifier text by text."""

from __future__ import annotations

from regard.tasks.built_in import describe_new_examples, is_built_in, sample_new_examples
from regard.tasks.item_scores import ItemScores
from regard.tasks.label.gold_attention import score_label_attention
from regard.tasks.label.predictor import LabelPredictor, join_labels
from regard.tasks.label.prepare import load_labeled_split, read_labeled_texts
from regard.tasks.settings import get_split_seed
from regard.tasks.words.score_items import build_word_scores


def score_label_items(predictor: LabelPredictor, test: str | None) -> ItemScores:
    """Classify the texts of a test file, new examples of a built-in corpus or the validation part; score each text."""
    data = predictor.recipe.data
    corpus = test or data.train
    if is_built_in(corpus, "label"):
        examples = sample_new_examples(predictor.recipe, corpus)
        part = describe_new_examples(corpus, examples)
    elif test is None:
        examples, part = load_labeled_split(data, get_split_seed(predictor.recipe))[1], "the validation texts"
    else:
        examples, part = read_labeled_texts(test, data), test
    predictions = predictor.select_labels(predictor.probabilities(examples))
    return build_word_scores(
        part,
        [predictor.split_words(example.text) for example in examples],
        predictions,
        [example.labels for example in examples],
        [join_labels(example_labels, data.separator or "|") for example_labels in predictions],
        predictor.vocabulary,
        single=not predictor.model.config.multi_label,
        attention=score_label_attention(predictor, examples),
    )
