"""Predictions, their probabilities and their weights, against each other and against the model step by step."""

import inspect
import math
from dataclasses import replace

import pytest
import torch

from regard.batch import BOS, EOS, Pair, collate
from regard.errors import RegardError
from regard.tasks.loading import load
from regard.tasks.pairs.options import SearchOptions
from regard.tasks.pairs.prediction import drop_duplicates

SOURCES = ["a b c d", "d c", "", "b a b", "a zz b", "c c c", "  d a "]


@pytest.fixture(scope="module")
def model(reverse_run):
    return load(reverse_run)


@pytest.fixture(params=["reverse_run", "transformer_run", "subword_run"])
def any_model(request):
    return load(request.getfixturevalue(request.param))


def test_the_letters_come_back_in_reverse(model):
    texts = ["a b c d", "d c", "b a b"]
    assert [prediction.text for prediction in model.predict(texts)] == ["d c b a", "c d", "b a b"]


def test_of_equal_texts_the_first_stays_where_it_was(model):
    best, other = model.predict("a b"), model.predict("b c")
    assert drop_duplicates([best, other, replace(best, log_probability=-9.0), other]) == [best, other]


def test_a_text_gives_a_prediction_and_a_list_a_list(model):
    prediction = model.predict("a b")
    assert (prediction.text, prediction.source_tokens, prediction.target_tokens) == (
        "b a",
        ("a", "b", "<eos>"),
        ("b", "a", "<eos>"),
    )
    assert prediction.weights is None
    assert model.predict([]) == []
    assert [prediction.text for prediction in model.predict(("a b",))] == ["b a"]


def test_several_at_once_are_what_each_is_alone(any_model):
    together = any_model.predict(SOURCES, nbest=2, max_length=8, return_weights=True)
    for text, prediction in zip(SOURCES, together, strict=True):
        alone = any_model.predict(text, nbest=2, max_length=8, return_weights=True)
        assert (prediction.source, prediction.text, prediction.target_tokens) == (text, alone.text, alone.target_tokens)
        assert prediction.log_probability == pytest.approx(alone.log_probability, abs=1e-4)
        torch.testing.assert_close(prediction.weights, alone.weights, rtol=1e-3, atol=1e-5)
        assert [other.text for other in prediction.alternatives] == [other.text for other in alone.alternatives]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"beam": 4, "nbest": 4, "length_penalty": 1.0},
        {"beam": 5, "nbest": 2, "length_penalty": 0.0, "max_length": 6},
        {"beam": 3, "nbest": 3, "length_penalty": 2.0, "max_length": 2},
        {"beam": 1, "length_penalty": 2.0},  # greedy, whatever the penalty
    ],
)
def test_a_search_that_is_watched_finds_what_predict_does(any_model, settings):
    options = SearchOptions(**settings)
    for search in any_model.search("a b c d", options):
        assert search.length >= 1
    prediction, expected = any_model.finish_search("a b c d", search, options), any_model.predict("a b c d", **settings)
    assert len(prediction.alternatives) == len(expected.alternatives)
    for one, other in zip(prediction.alternatives, expected.alternatives, strict=True):
        assert (one.text, one.log_probability) == (other.text, other.log_probability)
        assert one.ranking_score == other.ranking_score
        assert (one.source_tokens, one.target_tokens) == (other.source_tokens, other.target_tokens)
    assert prediction.text == expected.text


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.5])
def test_targets_are_ranked_by_a_score_that_is_given(any_model, length_penalty):
    best = any_model.predict("a b c d", beam=6, nbest=6, length_penalty=length_penalty).alternatives
    ended = [prediction for prediction in best if prediction.target_tokens[-1] == "<eos>"]  # those cut off come last
    scores = [prediction.ranking_score for prediction in ended]
    assert best[: len(ended)] == tuple(ended)
    assert scores == sorted(scores, reverse=True)
    for prediction in best:
        length = len(prediction.target_tokens)  # with <eos>
        expected = prediction.log_probability / ((5 + length) / 6) ** length_penalty
        assert prediction.ranking_score == pytest.approx(expected)
    given = any_model.force(["a b c d"], [best[0].text])[0]  # with the penalty of the recipe, 1
    assert given.ranking_score == pytest.approx(given.log_probability / ((5 + len(given.target_tokens)) / 6))
    greedy = any_model.predict("a b c d", beam=1, length_penalty=length_penalty)
    assert greedy.ranking_score == greedy.log_probability


def test_tokens_are_the_axes_of_the_weights_and_rows_sum_to_one(any_model):
    for best in any_model.predict(SOURCES, nbest=3, return_weights=True, max_length=6):
        for prediction in best.alternatives:
            layers = len(any_model.model.default_attention)
            assert prediction.weights.shape[0] == layers
            assert prediction.weights.shape[2:] == (len(prediction.target_tokens), len(prediction.source_tokens))
            torch.testing.assert_close(prediction.weights.sum(-1), torch.ones(prediction.weights.shape[:-1]))
            assert len(prediction.source_words) == len(prediction.source_tokens)
            assert len(prediction.target_words) == len(prediction.target_tokens)
            assert prediction.source_tokens[-1] == "<eos>"
            assert (prediction.target_tokens[-1:] == ("<eos>",)) == (
                len(prediction.pair.target) < len(prediction.target_tokens)
            )


def test_unknown_words_are_shown_as_they_are(model):
    prediction = model.predict("a zz b")
    assert prediction.source_tokens == ("a", "zz", "b", "<eos>")
    assert "<unk>" not in prediction.target_tokens


def test_unknown_characters_are_shown_as_they_are(plain_run):
    prediction = load(plain_run).predict("a\u2003ü b")  # an unknown em space also separates words
    assert prediction.source_tokens == ("a", "\\u2003", "ü", "▁", "b", "<eos>")
    assert prediction.source_words == (0, None, 1, None, 2, None)


def test_a_target_that_did_not_end_has_no_end_among_its_tokens(model):
    prediction = model.predict("a b c d", beam=1, max_length=2, return_weights=True)
    assert (prediction.target_tokens, prediction.target_words) == (("d", "c"), (0, 1))
    assert prediction.weights.shape[2] == 2


def test_an_empty_source_has_an_empty_target(any_model):
    prediction = any_model.predict(" ", nbest=4, return_weights=True)
    assert (prediction.text, prediction.log_probability, len(prediction.alternatives)) == ("", 0.0, 1)
    torch.testing.assert_close(prediction.weights.sum(-1), torch.ones(prediction.weights.shape[:-1]))
    assert any_model.attention_map(prediction).rows == ("<eos>",)
    with pytest.raises(RegardError, match=r"^attention_map: the source has no words; pass words=False$"):
        any_model.attention_map(prediction, words=True)


def test_an_empty_prediction_has_no_words_to_show(model):
    prediction = model.force(["a b"], [""], return_weights=True)[0]
    assert model.attention_map(prediction).rows == ("<eos>",)
    with pytest.raises(RegardError, match=r"^attention_map: the prediction has no words; pass words=False$"):
        model.attention_map(prediction, words=True)


@pytest.mark.parametrize("any_model", ["reverse_run", "transformer_run"], indirect=True)
def test_a_forced_target_is_as_probable_as_when_it_was_predicted(any_model):
    texts = [text for text in SOURCES if text.strip()]
    all_predictions = [prediction for best in any_model.predict(texts, nbest=5) for prediction in best.alternatives]
    ended = [prediction for prediction in all_predictions if prediction.target_tokens[-1] == "<eos>"]
    assert len(ended) > 3
    forced = any_model.force([prediction.source for prediction in ended], [prediction.text for prediction in ended])
    for prediction, again in zip(ended, forced, strict=True):
        assert again.log_probability == pytest.approx(prediction.log_probability, abs=1e-4)


def test_a_log_probability_is_the_sum_of_the_model_s_own_steps(model):
    prediction = model.predict("a b c d")
    ids = model.tokenizers.source.encode("a b c d")
    state, last, total = model.model.start(collate([Pair(ids)]), capacity=9), BOS, 0.0
    for token in [*model.tokenizers.target.encode(prediction.text), EOS]:
        logits, state = model.model.step(torch.tensor([last]), state)
        total, last = total + logits.log_softmax(-1)[0, token].item(), token
    assert prediction.log_probability == pytest.approx(total, abs=1e-5)
    assert model.force(["a b c d"], ["d c b a"])[0].log_probability == pytest.approx(total, abs=1e-5)


def test_alternatives_come_best_first_and_the_best_is_the_prediction(model):
    prediction = model.predict("a b c d", nbest=5, length_penalty=0.0)
    values = [other.log_probability for other in prediction.alternatives]
    assert len(values) == 5
    assert values == sorted(values, reverse=True)
    assert (prediction.text, prediction.log_probability) == (prediction.alternatives[0].text, values[0])
    assert len({other.target_tokens for other in prediction.alternatives}) == 5
    assert sum(map(math.exp, values)) < 1


def test_forced_targets_keep_their_own_words(model):
    prediction = model.force(["a b"], ["b qq  a"], return_weights=True)[0]
    assert (prediction.text, prediction.target_tokens) == ("b qq  a", ("b", "qq", "a", "<eos>"))
    assert model.attention_map(prediction, words=True).rows == ("b", "qq", "a")


def test_subwords_are_merged_to_the_words_of_the_text(subword_run):
    model = load(subword_run)
    prediction = model.force(["The cats sleep ünknown"], ["ünknown Cats"], return_weights=True)[0]
    assert len(prediction.source_tokens) > 5
    picture = model.attention_map(prediction, words=True)
    assert (picture.rows, picture.columns) == (("ünknown", "cats"), ("the", "cats", "sleep", "ünknown"))
    inside = [index for index, word in enumerate(prediction.source_words) if word == 3]
    rows = [index for index, word in enumerate(prediction.target_words) if word == 0]
    assert min(len(inside), len(rows)) > 1
    by_hand = prediction.weights[0, 0][rows][:, inside].sum(-1).mean()
    assert picture.weights[0, 0, 0, 3] == pytest.approx(by_hand.item(), abs=1e-6)


def test_weights_are_plain_tensors(model):
    weights = model.predict("a b", return_weights=True).weights
    weights.requires_grad_().sum().backward()  # which those of inference mode refuse
    assert weights.grad is not None


def test_the_map_names_model_source_and_prediction(model):
    picture = model.attention_map(model.predict("a b", return_weights=True))
    assert picture.title == "bahdanau: a b → b a"
    assert (picture.rows, picture.columns) == (("b", "a", "<eos>"), ("a", "b", "<eos>"))


def test_progress_is_told_how_many_are_done(model):
    counts: list[int] = []
    model.predict(["a b", "", "c d"], progress=counts.append)
    assert counts == [2]  # the empty one needs no decoding


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"beam": 0}, "predict: beam must be at least 1, got 0"),
        ({"nbest": 0}, "predict: nbest must be at least 1, got 0"),
        ({"max_length": 10**12}, "predict: max_length must be at most 100,000, got 1,000,000,000,000"),
        ({"beam": 2, "nbest": 3}, "predict: nbest must be at most beam (2), got 3"),
        (
            {"length_penalty": math.nan},
            "predict: length_penalty must be at least 0, got nan",
        ),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(model, options, line):
    with pytest.raises(RegardError) as caught:
        model.predict("a b", **options)
    assert str(caught.value) == line


def test_a_model_without_attention_says_so(plain_run):
    model = load(plain_run)
    assert isinstance(model.predict("a b").text, str)
    line = r"^seq2seq has no attention from target to source$"
    with pytest.raises(RegardError, match=line):
        model.predict("a b", return_weights=True)
    with pytest.raises(RegardError, match=line):
        model.force(["a b"], ["b a"], return_weights=True)


def test_a_map_needs_weights_and_forcing_as_many_targets_as_sources(model):
    with pytest.raises(RegardError, match=r"^attention_map: the prediction has no weights; pass return_weights=True"):
        model.attention_map(model.predict("a b"))
    with pytest.raises(RegardError, match=r"^force: expected one target per source, got 1 sources and 2 targets$"):
        model.force(["a"], ["a", "b"])


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (None, "predict: expected a string or a list of strings, got NoneType"),
        (3, "predict: expected a string or a list of strings, got int"),
        (["a", 3], "predict: text 2: expected a string, got int"),
        (b"a", "predict: text 1: expected a string, got int"),
    ],
)
def test_what_is_no_text_is_named(model, texts, line):
    with pytest.raises(RegardError) as caught:
        model.predict(texts)
    assert str(caught.value) == line


def test_a_map_is_made_of_one_prediction(model):
    unchecked = inspect.unwrap(type(model).attention_map)
    with pytest.raises(RegardError, match=r"^attention_map: expected a Prediction, got list$"):
        unchecked(model, [model.predict("a")])


def test_a_predictor_is_described_in_a_line(model):
    count = sum(parameter.numel() for parameter in model.model.parameters())
    assert repr(model) == f"PairPredictor(bahdanau, words to words, {count:,} parameters, on cpu)"
