"""Score a tagger sentence by sentence."""

from __future__ import annotations

from regard.tasks.built_in import describe_new_examples, is_built_in, sample_new_examples
from regard.tasks.item_scores import ItemScores
from regard.tasks.settings import get_split_seed
from regard.tasks.tag.gold_attention import score_tag_attention
from regard.tasks.tag.predictor import TagPredictor
from regard.tasks.tag.prepare import load_tagged_split, read_tagged_sentences
from regard.tasks.words.score_items import build_word_scores


def score_tag_items(predictor: TagPredictor, test: str | None) -> ItemScores:
    """Tag the sentences of a test file, new ones of a built-in corpus or the validation part; score each sentence."""
    data = predictor.recipe.data
    corpus = test or data.train
    if is_built_in(corpus, "tag"):
        sentences = sample_new_examples(predictor.recipe, corpus)
        part = describe_new_examples(corpus, sentences)
    elif test is None:
        sentences, part = load_tagged_split(data, get_split_seed(predictor.recipe))[1], "the validation sentences"
    else:
        only_spans = predictor.model.config.scheme != "plain"
        sentences, part = read_tagged_sentences(test, data.columns, only_spans=only_spans), test
    taggings = predictor.predict([sentence.words for sentence in sentences])
    return build_word_scores(
        part,
        [sentence.words for sentence in sentences],
        [predictor.list_spans(tagging.tags) for tagging in taggings],
        [predictor.list_spans(sentence.tags) for sentence in sentences],
        [" ".join(tagging.tags) for tagging in taggings],
        predictor.vocabulary,
        single=False,
        attention=score_tag_attention(predictor, sentences),
    )
