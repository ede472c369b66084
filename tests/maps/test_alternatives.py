import math

import pytest
import torch

from regard.api import look
from regard.attention.watch import watch
from regard.batch import BOS, EOS, collate
from regard.decoding import Hypothesis, token_log_probabilities
from regard.maps.alternatives import find_top_alternatives
from regard.tasks.loading import load
from regard.tasks.pairs.look import format_hypothesis


def names(ids):
    return ["abcdefg"[number] for number in ids]


def test_the_most_probable_and_the_one_that_is_there():
    rows = torch.tensor([[0.3, 0.2, 0.15, 0.12, 0.1, 0.08, 0.05]] * 2)
    first, second = find_top_alternatives(rows, torch.tensor([1, 6]), names)
    assert [text for text, _ in first] == list("abcde")
    assert [text for text, _ in second] == list("abcdeg")
    assert second[-1][1] == pytest.approx(0.05)
    (few,) = find_top_alternatives(torch.tensor([[0.25, 0.75]]), torch.tensor([0]), names)
    assert few == (("b", 0.75), ("a", 0.25))


def test_a_beam_says_what_it_held(reverse_run):
    model = load(reverse_run)
    assert model.recipe.decoding.beam > 1
    picture = look(model, "a b c")
    assert len(picture.alternatives) == 4
    for row, considered in enumerate(picture.alternatives):
        probabilities = [probability for _, probability in considered]
        assert probabilities == sorted(probabilities, reverse=True)
        assert considered[0][0] == ("c", "c b", "c b a", "c b a <eos>")[row]
    for text, probability in picture.alternatives[-1]:  # those that ended are as probable as when they are forced
        if text.endswith("<eos>"):
            (forced,) = model.force(["a b c"], [text.removesuffix(" <eos>")])
            assert probability == pytest.approx(math.exp(forced.log_probability), abs=1e-5)


def test_a_look_searches_once(reverse_run, monkeypatch):
    model, counts = load(reverse_run), []
    step = model.model.step
    monkeypatch.setattr(model.model, "step", lambda *given: counts.append(1) or step(*given))
    expected = model.predict("a b c", max_length=9)
    once = len(counts)
    picture = look(model, "a b c", max_length=9)
    assert (len(counts), picture.rows) == (2 * once, expected.target_tokens)


def test_of_a_long_hypothesis_the_end_is_shown(reverse_run):
    tokenizer = load(reverse_run).tokenizers.target
    text = "a b " * 10 + "c d"
    ids = tokenizer.encode(text)
    assert format_hypothesis(tokenizer, Hypothesis((*ids, EOS), 0.0, ended=True)) == f"…{text[-39:]} <eos>"
    assert format_hypothesis(tokenizer, Hypothesis((EOS,), 0.0, ended=True)) == "<eos>"


def test_a_long_target_is_set_beside_single_tokens(reverse_run, monkeypatch):
    monkeypatch.setattr("regard.tasks.pairs.look.LONG", 3)
    picture = look(load(reverse_run), "a b c")
    assert [several[0][0] for several in picture.alternatives] == ["c", "b", "a", "<eos>"]


def test_a_given_target_is_set_beside_what_the_model_would_write(reverse_run):
    model = load(reverse_run)
    picture = look(model, "a b c", target="d b a")
    (forced,) = model.force(["a b c"], ["d b a"])
    logs = token_log_probabilities(model.model, collate([forced.pair]))[0].tolist()
    for row, considered, log in zip(picture.rows, picture.alternatives, logs, strict=True):
        assert dict(considered)[row] == pytest.approx(math.exp(log), abs=1e-6)
    assert picture.alternatives[0][0][0] == "c"  # which it would have begun with


def test_greedy_writes_the_first_alternative(reverse_run):
    model = load(reverse_run)
    object.__setattr__(model.recipe.decoding, "beam", 1)
    picture = look(model, "a b c")
    assert tuple(several[0][0] for several in picture.alternatives) == picture.rows
    assert all(len(several) == 5 for several in picture.alternatives)


def test_a_token_of_a_text_comes_from_those_before_it(gpt_run):
    model = load(gpt_run)
    picture = look(model, "the cat")
    scored = model.score_texts("the cat")
    assert picture.alternatives_for == "next"
    assert picture.rows == ("<bos>", *scored.tokens)
    steps = zip(scored.tokens, scored.log_probabilities, picture.alternatives[:-1], strict=True)
    for token, log, considered in steps:
        assert dict(considered)[token] == pytest.approx(math.exp(log), abs=1e-6)
    first = model.model(torch.tensor([[BOS]]))[0][0, 0].softmax(-1)
    best = picture.alternatives[0][0]
    assert best[1] == pytest.approx(first[4:].max().item(), abs=1e-6)  # of what may be written
    assert model.tokenizer.ids_to_tokens([4 + int(first[4:].argmax())]) == [best[0]]


def test_a_step_of_a_text_is_shown_with_its_own_attention(gpt_run):
    model = load(gpt_run)
    picture = look(model, "the cat", words=False)
    ids = [BOS, *model.tokenizer.encode("the cat")]
    for step in range(len(ids)):  # each prefix by itself: its last step is the one that writes the next token
        tokens = torch.tensor([ids[: step + 1]])
        with torch.no_grad(), watch(model.model, "dense") as seen:
            logits = model.model(tokens)[0][0, -1]
        weights = torch.stack([seen[path][0][0, :, -1] for path in model.model.default_attention])
        actual = torch.tensor(picture.weights[:, :, step, : step + 1])
        torch.testing.assert_close(actual, weights.reshape(actual.shape), atol=1e-5, rtol=1e-4)
        allowed = logits.softmax(-1)[3:]  # <eos> and all tokens but <pad>, <unk> and <bos>
        text, probability = picture.alternatives[step][0]
        assert probability == pytest.approx(allowed.max().item(), abs=1e-5)
        assert model.tokenizer.ids_to_tokens([3 + int(allowed.argmax())]) == [text]
