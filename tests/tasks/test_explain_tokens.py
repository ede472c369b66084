from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, current_thread, main_thread
from typing import Any

import numpy as np
import pytest
import torch

from regard.alignment import merge_words
from regard.api import explain
from regard.attention.watch import watch
from regard.batch import BOS, Pair, collate
from regard.errors import RegardError
from regard.models import LanguageModel, Seq2Seq, build
from regard.tasks import to_recipe
from regard.tasks.loading import load
from regard.tasks.pairs.predictor import PairPredictor
from regard.tasks.text.predictor import TextPredictor
from regard.text.learn import learn_lm_tokenizer
from regard.text.tokenizer_pair import TokenizerPair, learn_tokenizer_pair
from tests.tasks.words.test_explain import slope, without


def pairs(name: str, **settings: Any) -> PairPredictor:
    """A model of pairs of letters, as chance made it."""
    torch.manual_seed(2)
    tokenizers, _ = learn_tokenizer_pair(["abcdefg"], ["abcdefg"], kind="characters", shared_vocab=True)
    model = build(name, source_vocab_size=tokenizers.source.size, target_vocab_size=tokenizers.target.size, **settings)
    assert isinstance(model, Seq2Seq)
    return PairPredictor(model, tokenizers, to_recipe({"model": {"name": name}}, "a test"), {})


def texts(name: str, **settings: Any) -> TextPredictor:
    """A language model of letters, as chance made it."""
    torch.manual_seed(4)
    tokenizer = learn_lm_tokenizer("characters", ["abcdefg"])
    tokenizers = TokenizerPair(tokenizer, tokenizer)
    model = build(name, vocab_size=tokenizers.target.size, **settings)
    assert isinstance(model, LanguageModel)
    return TextPredictor(model, tokenizers, to_recipe({"model": {"name": name}}, "a test"), {})


RECURRENT = {"hidden": 6, "embedding": 6}
LAYERS = {"width": 8, "heads": 2}
TARGET: dict[str, Any] = {"bahdanau": {"target": "efg"}, "gru-lm": {}}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bahdanau", RECURRENT),
        ("seq2seq", {**RECURRENT, "reverse_source": True}),
        ("simple-attention", {**RECURRENT, "tied": True, "tied_embeddings": True, "reverse_source": True}),
        ("transformer", {**LAYERS, "tied": "none"}),
        ("transformer", {**LAYERS, "tied": "all"}),
    ],
)
def test_the_gradient_at_a_source(name, settings):
    predictor = pairs(name, **settings)
    predictor.model.double()
    explanation = explain(predictor, "abcd", target="efg")
    module = predictor.model.input_embedding
    ids = predictor.tokenizers.source.encode("abcd")

    def value() -> float:
        return predictor.force(["abcd"], ["efg"])[0].log_probability

    assert explanation.words == ("a", "b", "c", "d")
    slopes = [slope(value, module, token_id, step=1e-6) for token_id in ids]
    assert explanation.values["gradient x input"] == pytest.approx(slopes, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gru-lm", RECURRENT),
        ("neural-lm", {**RECURRENT, "window": 3, "tied": True}),
        ("attentive-lm", RECURRENT),
        ("gpt", {**LAYERS, "tied": False}),
    ],
)
def test_the_gradient_at_a_text(name, settings):
    predictor = texts(name, **settings)
    predictor.model.double()
    explanation = explain(predictor, "abcde")
    module = predictor.model.input_embedding
    ids = predictor.tokenizer.encode("abcd")
    slopes = [slope(lambda: predictor.score_texts("abcde").log_probabilities[-1], module, token_id) for token_id in ids]
    assert explanation.values["gradient x input"] == pytest.approx(slopes, abs=2e-3)
    assert explanation.log_probability == pytest.approx(predictor.score_texts("abcde").log_probabilities[-1], abs=1e-5)


def test_a_whole_target_and_its_own_prediction(reverse_run):
    predictor = load(reverse_run)
    assert isinstance(predictor, PairPredictor)
    explanation, best = explain(predictor, "a b c"), predictor.predict("a b c", return_weights=True)
    assert explanation.description == f'the target "{best.text}", log-probability {best.log_probability:.2f}'
    assert explanation.words == ("a", "b", "c")
    rest = predictor.force(["b c", "a c", "a b"], [best.text] * 3)
    falls = [best.log_probability - each.log_probability for each in rest]
    assert explanation.values["leave one out"] == pytest.approx(falls, abs=2e-5)
    rows = best.weights.mean((0, 1, 2))  # those of <eos> among them
    assert explanation.values["attention"] == pytest.approx(rows[:3].tolist(), abs=1e-6)
    assert explanation.notes == (f"{rows[3]:.2f} of the attention is outside of these words",)


def test_a_model_that_reverses_is_explained_by_the_right_letter(reverse_run):
    predictor = load(reverse_run)
    for index in range(3):
        explanation = explain(predictor, "a b c", target="c b a", word=index)
        assert explanation.description.startswith(
            f'word {index}, "{"cba"[index]}", of the target "c b a", log-probability '
        )
        assert max(range(3), key=explanation.values["leave one out"].__getitem__) == 2 - index
        assert max(range(3), key=explanation.values["attention"].__getitem__) == 2 - index


def test_subwords_are_merged_to_words(subword_run):
    predictor = load(subword_run)
    assert isinstance(predictor, PairPredictor)
    text, target = "The birds do not sing", "sing not do birds the"
    explanation = explain(predictor, text, target=target, word=3)
    forced = predictor.force([text], [target], return_weights=True)[0]
    assert len(forced.source_tokens) > 6
    assert explanation.words == ("the", "birds", "do", "not", "sing")  # in lower case, as the model reads them
    merged = merge_words(forced.weights.numpy().mean((0, 1)), forced.source_words, forced.target_words)
    np.testing.assert_allclose(explanation.values["attention"], merged[3], rtol=1e-4)
    whole = explain(predictor, text, target=target)
    shorter = [" ".join(without(text.split(), index)) for index in range(5)]
    rest = [each.log_probability for each in predictor.force(shorter, [target] * 5)]
    assert whole.values["leave one out"] == pytest.approx([forced.log_probability - each for each in rest], abs=2e-5)


def test_rollout_of_a_transformer():
    predictor = pairs("transformer", **LAYERS, encoder_layers=2, decoder_layers=2)
    explanation = explain(predictor, "abc", target="de", word=1)
    source, target = (predictor.tokenizers.source.encode(text) for text in ("abc", "de"))
    with torch.no_grad(), watch(predictor.model, keep="dense") as seen:
        predictor.model.features(collate([Pair(source, target)]))
    one, two = ((seen[f"encoder.layers.{n}.attention"][0][0].mean(0).numpy() + np.eye(4)) / 2 for n in range(2))
    across = np.mean([seen[f"decoder.layers.{n}.cross"][0][0].mean(0)[1].numpy() for n in range(2)], 0)
    np.testing.assert_allclose(explanation.values["attention"], across[:3], rtol=1e-5)
    np.testing.assert_allclose(explanation.values["attention rollout"], (across @ two @ one)[:3], rtol=1e-5)


def test_attention_and_rollout_of_a_gpt(gpt_run):
    predictor = load(gpt_run)
    assert isinstance(predictor, TextPredictor)
    explanation = explain(predictor, "the cat", word=4)
    assert explanation.words == ("t", "h", "e", "▁")
    assert (
        explanation.description
        == f'character 4, "c", probability {np.exp(predictor.score_texts("the c").log_probabilities[-1]):.3g}'
    )
    tokens = torch.tensor([[BOS, *predictor.tokenizer.encode("the ")]])
    with torch.no_grad(), watch(predictor.model, keep="dense") as seen:
        predictor.model.read(tokens)
    layers = [seen[path][0][0].mean(0).numpy() for path in predictor.model.default_attention]
    one, two = ((layer + np.eye(5)) / 2 for layer in layers)
    np.testing.assert_allclose(explanation.values["attention"], np.mean(layers, 0)[-1, 1:], rtol=1e-5)
    np.testing.assert_allclose(explanation.values["attention rollout"], (two @ one)[-1, 1:], rtol=1e-5)
    to_bos = np.mean(layers, 0)[-1, 0]
    assert explanation.notes == (f"{to_bos:.2f} of the attention is outside of these characters",)


def test_leaving_out_words_before_the_last(text_run):
    predictor = load(text_run)
    assert isinstance(predictor, TextPredictor)
    text = "the cat sees the dog"
    explanation = explain(predictor, text)
    value = [predictor.score_texts(" ".join(each)).log_probabilities[-2] for each in (text.split(), *shorter(text))]
    assert explanation.words == ("the", "cat", "sees", "the")
    assert explanation.values["leave one out"] == pytest.approx([value[0] - each for each in value[1:]], abs=2e-5)
    assert list(explanation.values) == ["gradient x input", "leave one out"]
    assert explanation.notes == ("attention is not shown: gru-lm has no attention",)


def shorter(text: str) -> list[list[str]]:
    """Without each of the words before the last."""
    words = text.split()
    return [without(words, index) for index in range(len(words) - 1)]


def test_a_word_of_several_tokens_is_as_probable_as_all_of_them():
    torch.manual_seed(1)
    tokenizer = learn_lm_tokenizer("bpe", ["aa bb cc"] * 4, vocab_size=262)
    tokenizers = TokenizerPair(tokenizer, tokenizer)
    model = build("gpt", vocab_size=tokenizers.target.size, **LAYERS)
    predictor = TextPredictor(model, tokenizers, to_recipe({"model": {"name": "gpt"}}, "a test"), {})
    text = "aa bb xyz"
    last = [index for index, word in enumerate(tokenizer.encode_with_words(text).word_indices) if word == 2]
    assert len(last) > 1
    explanation = explain(predictor, text)
    assert explanation.words == ("aa", "bb")
    values = [predictor.score_texts(each).log_probabilities for each in (text, "aa xyz")]
    assert explanation.log_probability == pytest.approx(sum(values[0][index] for index in last), abs=1e-5)
    removed = len(values[0]) - len(values[1])
    whole, rest = sum(values[0][last[0] :]), sum(values[1][last[0] - removed :])
    assert explanation.values["leave one out"][1] == pytest.approx(whole - rest, abs=2e-5)


def test_a_model_without_attention(plain_run):
    explanation = explain(load(plain_run), "a b")
    assert list(explanation.values) == ["gradient x input", "leave one out"]
    assert explanation.notes == ("attention is not shown: seq2seq has no attention from target to source",)


@pytest.mark.parametrize(
    ("make", "text", "options", "message"),
    [
        (pairs, "ab", {"target": "c", "word": 2}, "explain: character of the target must be from 0 to 0, got 2"),
        (pairs, "", {}, "explain: the source is empty"),
        (pairs, "ab", {"label": "x"}, "explain: label is not an option of transformer"),
        (texts, "a", {}, "explain: the character to explain must have at least one character before it"),
        (texts, "", {}, "explain: the character to explain must have at least one character before it"),
        (texts, "ab", {"word": 0}, "explain: the character to explain must have at least one character before it"),
        (texts, "ab", {"word": 7}, "explain: character must be from 0 to 1, got 7"),
        (texts, "abcdef", {}, "explain: text must have at most 4 tokens, got 6"),
        (texts, "ab", {"target": "x"}, "explain: target is not an option of gpt"),
    ],
)
def test_what_cannot_be_explained(make, text, options, message):
    predictor = pairs("transformer", **LAYERS) if make is pairs else texts("gpt", **LAYERS, context_length=4)
    with pytest.raises(RegardError) as error:
        explain(predictor, text, **options)
    assert str(error.value).removesuffix(", counted from 0") == message


@pytest.mark.parametrize("name", ["bahdanau", "gru-lm"])
def test_threads_explain_one_model_at_once(name):
    predictor = pairs(name, **RECURRENT) if name == "bahdanau" else texts(name, **RECURRENT)
    words = ["abcd", "gfed"]
    alone = [explain(predictor, text, **TARGET[name]) for text in words]
    both = Barrier(2)

    def meet(*_: object) -> None:
        both.wait(60)  # each call of the embedding waits for one of the other thread

    with predictor.model.input_embedding.register_forward_pre_hook(meet), ThreadPoolExecutor(2) as threads:
        explanation = list(threads.map(lambda text: explain(predictor, text, **TARGET[name]), words))
    assert [each.values for each in explanation] == [each.values for each in alone]
    assert alone[0].values != alone[1].values


def test_a_model_runs_in_another_thread_while_it_is_explained():
    predictor = pairs("transformer", **LAYERS)
    alone, forced = explain(predictor, "abcd", target="efg"), predictor.force(["abcd"], ["efg"])[0].log_probability
    others: list[float] = []

    def run_elsewhere(*_: object) -> None:
        if current_thread() is main_thread():
            with ThreadPoolExecutor(1) as threads:
                (other,) = threads.submit(predictor.force, ["abcd"], ["efg"]).result()
            others.append(other.log_probability)

    with predictor.model.input_embedding.register_forward_pre_hook(run_elsewhere):
        explanation = explain(predictor, "abcd", target="efg")
    assert explanation.values == alone.values
    assert set(others) == {forced}
