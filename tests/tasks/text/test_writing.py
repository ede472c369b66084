import pytest

from regard.tasks.loading import load
from regard.tasks.predictor import Request
from regard.tasks.text.options import WriteOptions
from regard.tasks.text.writing import Growing, growing_texts
from regard.text import learn


def asked(text, **settings):
    return Request(text, WriteOptions(**settings))


@pytest.fixture
def predictors(gpt_run, text_run):
    return {"gpt": load(gpt_run), "text": load(text_run)}


def grown(model, several):
    return list(growing_texts(model.model, model.tokenizer, model.device, several))


@pytest.mark.parametrize("name", ["gpt", "text"])
def test_texts_that_are_written_together_are_those_written_alone(predictors, name):
    model = predictors[name]
    prompts = ["the cat", "the dog"] if name == "gpt" else ["the cat sees", "a bird sings"]
    settings = [{"tokens": 12, "seed": 3, "temperature": 0.7}, {"tokens": 5, "greedy": True}]
    several = [asked(prompt, **own) for prompt, own in zip(prompts, settings, strict=True)]
    steps = grown(model, several)
    assert len(steps) <= 12
    for row, (prompt, own) in enumerate(zip(prompts, settings, strict=True)):
        expected, found = model.generate(prompt, **own), steps[-1][row]
        assert (found.text, found.ended, found.over) == (expected.text, expected.ended, True)
        assert tuple(model.tokenizer.tokens_of(found.ids)) == expected.tokens[1 + len(model.tokenizer.encode(prompt)) :]
        assert found.log_probability == pytest.approx(expected.log_probability, abs=1e-4)
        assert "".join(step[row].part for step in steps) == expected.text


def test_each_text_is_over_at_its_own_end(predictors):
    model = predictors["text"]  # whose documents are lines, so that it ends them
    prompts, limits = ["the cat sees", "a bird sings"], [50, 1]
    several = [asked(prompt, tokens=limit, greedy=True) for prompt, limit in zip(prompts, limits, strict=True)]
    steps = grown(model, several)
    whole = model.generate(prompts[0], tokens=50, greedy=True)
    assert whole.ended
    needed = len(whole.tokens) - 4 + 1  # without <bos> and the prompt, with <eos>
    assert needed > 1
    assert [step[0].over for step in steps] == [False] * (needed - 1) + [True]
    assert [step[1].over for step in steps] == [True] * needed
    assert [step[1].part for step in steps[1:]] == [""] * (needed - 1)


def test_half_a_character_waits_for_the_other_half():
    tokenizer = learn("bytes", ["é€"])
    ids = tokenizer.encode("é€")
    growing = Growing(tokenizer, "", 5)
    parts = [growing.add(number, -1.0) for number in ids]
    assert [part.part for part in parts] == ["", "é", "", "", "€"]
    assert (parts[-1].text, parts[-1].over, parts[-1].log_probability) == ("é€", True, -5.0)
    assert Growing(tokenizer, "", 1).add(ids[0], -1.0).text == "\ufffd"
