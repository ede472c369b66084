import pytest

from regard.tasks.loading import load
from regard.tasks.predictor import Request
from regard.tasks.text.generation import IncrementalText, iter_growing_texts
from regard.tasks.text.options import GenerationOptions
from regard.text import learn_tokenizer


def request(text, **settings):
    return Request(text, GenerationOptions(**settings))


@pytest.fixture
def predictors(gpt_run, text_run):
    return {"gpt": load(gpt_run), "text": load(text_run)}


def grow(model, requests):
    return list(iter_growing_texts(model.model, model.tokenizer, model.device, requests))


@pytest.mark.parametrize("name", ["gpt", "text"])
def test_texts_that_are_written_together_are_those_written_alone(predictors, name):
    model = predictors[name]
    prompts = ["the cat", "the dog"] if name == "gpt" else ["the cat sees", "a bird sings"]
    settings = [{"max_tokens": 12, "seed": 3, "temperature": 0.7}, {"max_tokens": 5, "greedy": True}]
    requests = [request(prompt, **options) for prompt, options in zip(prompts, settings, strict=True)]
    steps = grow(model, requests)
    assert len(steps) <= 12
    for row, (prompt, options) in enumerate(zip(prompts, settings, strict=True)):
        expected, text = model.generate(prompt, **options), steps[-1][row]
        assert (text.text, text.ended, text.finished) == (expected.text, expected.ended, True)
        assert (
            tuple(model.tokenizer.ids_to_tokens(text.ids)) == expected.tokens[1 + len(model.tokenizer.encode(prompt)) :]
        )
        assert text.log_probability == pytest.approx(expected.log_probability, abs=1e-4)
        assert "".join(step[row].added_text for step in steps) == expected.text


def test_each_text_is_over_at_its_own_end(predictors):
    model = predictors["text"]  # whose documents are lines, so that it ends them
    prompts, limits = ["the cat sees", "a bird sings"], [50, 1]
    requests = [request(prompt, max_tokens=limit, greedy=True) for prompt, limit in zip(prompts, limits, strict=True)]
    steps = grow(model, requests)
    whole = model.generate(prompts[0], max_tokens=50, greedy=True)
    assert whole.ended
    needed = len(whole.tokens) - 4 + 1  # without <bos> and the prompt, with <eos>
    assert needed > 1
    assert [step[0].finished for step in steps] == [False] * (needed - 1) + [True]
    assert [step[1].finished for step in steps] == [True] * needed
    assert [step[1].added_text for step in steps[1:]] == [""] * (needed - 1)


def test_half_a_character_waits_for_the_other_half():
    tokenizer = learn_tokenizer("bytes", ["é€"])
    ids = tokenizer.encode("é€")
    growing = IncrementalText(tokenizer, "", 5)
    parts = [growing.add(token, -1.0) for token in ids]
    assert [part.added_text for part in parts] == ["", "é", "", "", "€"]
    assert (parts[-1].text, parts[-1].finished, parts[-1].log_probability) == ("é€", True, -5.0)
    assert IncrementalText(tokenizer, "", 1).add(ids[0], -1.0).text == "\ufffd"
