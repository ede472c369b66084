"""Reading and writing text, against passes of the model that are made by hand."""

import inspect

import pytest
import torch

from regard.attention.watch import watch
from regard.batch import BOS, EOS
from regard.errors import RegardError
from regard.models import LanguageModel, build
from regard.tasks.loading import load
from regard.tasks.predictor import Request
from regard.tasks.text.options import WriteOptions
from regard.tasks.text.predictor import TextPredictor
from regard.tasks.text.settings import TextData, TextRecipe
from regard.text import KINDS, Tokenizers
from regard.text.learn import learn_text
from regard.text.tokenizer import Kind

TEXTS = ["the cat sees the dog", "a dog sings, and the cats sing ☃\n", "cats and dogs sleep\n"] * 3
TOKENIZERS = {kind: learn_text(kind, TEXTS, size=None if kind == "bytes" else 290) for kind in KINDS}
LONG = "the cats sing and the dogs sleep, the dog sees a cat"
SIZES = {
    "neural-lm": {"hidden": 6, "embedding": 5, "window": 3},
    "rnn-lm": {"hidden": 6, "embedding": 5},
    "gru-lm": {"hidden": 6, "embedding": 5},
    "lstm-lm": {"hidden": 6, "embedding": 5, "layers": 2},
    "attentive-lm": {"hidden": 6, "embedding": 5, "window": 4},
    "gpt": {"width": 8, "heads": 2, "layers": 2, "longest": 12},
}


def predictor(name: str = "gpt", kind: Kind = "characters", documents: str = "file", **sizes: object) -> TextPredictor:
    """A model with random parameters, large enough for it to have opinions."""
    torch.manual_seed(1)
    tokenizer = TOKENIZERS[kind]
    model = build(name, size=tokenizer.size, **{**SIZES[name], **sizes}).eval()
    assert isinstance(model, LanguageModel)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    recipe = TextRecipe(model={"name": name}, data=TextData(documents=documents))  # type: ignore[arg-type]
    return TextPredictor(model, Tokenizers(tokenizer, tokenizer), recipe, {})


def after(model: torch.nn.Module, before: list[int]) -> torch.Tensor:
    """The log-probability of each next token, by one pass over those before it."""
    with torch.no_grad():
        return model(torch.tensor([before]))[0][0, -1].double().log_softmax(-1)


@pytest.fixture
def refused():
    def expect(line, call, *arguments, **options):
        with pytest.raises(RegardError) as caught:
            call(*arguments, **options)
        assert str(caught.value) == line

    return expect


# reading


@pytest.mark.parametrize("segment", [3, 2048])
@pytest.mark.parametrize("name", [name for name in SIZES if name != "gpt"])
def test_each_token_is_read_after_all_before_it(name, segment, monkeypatch):
    monkeypatch.setattr("regard.tasks.text.predictor.SEGMENT", segment)
    found = predictor(name)
    reading = found.read(LONG)
    ids = [BOS, *found.tokenizer.encode(LONG)]
    wanted = [after(found.model, ids[:place])[ids[place]].item() for place in range(1, len(ids))]
    assert reading.log_probabilities == pytest.approx(wanted, abs=1e-4)
    assert reading.log_probability == pytest.approx(sum(wanted), abs=1e-3)
    assert reading.tokens == tuple(LONG.replace(" ", "▁"))


@pytest.mark.parametrize("longest", [1, 2, 7, 12, 60])
def test_beyond_the_context_each_token_is_read_after_half_of_it_at_least(longest):
    found = predictor("gpt", longest=longest)
    ids = [BOS, *found.tokenizer.encode(LONG)]
    half = longest // 2
    new = longest - half  # tokens of each window that were not scored in the one before
    wanted = []
    for place in range(1, len(ids)):
        start = max(0, (place - 1) // new * new - half)
        assert min(place, half + 1) <= place - start <= longest
        wanted.append(after(found.model, ids[start:place])[ids[place]].item())
    assert found.read(LONG).log_probabilities == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("name", ["gru-lm", "attentive-lm", "gpt"])
@pytest.mark.parametrize("tokens", [1, 40, 8192])
def test_nothing_depends_on_the_others_of_a_batch(name, tokens, monkeypatch):
    texts = ["cats", "", LONG, "the dog", LONG[5:40], "a", LONG[:13]]
    found = predictor(name)
    wanted = [found.read(text) for text in texts]
    monkeypatch.setattr("regard.tasks.text.predictor.TOKENS", tokens)
    for several in (texts, texts[::-1]):
        told: list[int] = []
        readings = found.read(several, progress=told.append)
        assert [reading.text for reading in readings] == several
        for reading in readings:
            alone = wanted[texts.index(reading.text)]
            assert reading.tokens == alone.tokens
            assert reading.log_probabilities == pytest.approx(alone.log_probabilities, abs=1e-5)
        assert told[-1] == len(texts)
        assert told == sorted(told)


def test_the_end_counts_where_a_line_is_a_document():
    whole, line = predictor("gru-lm"), predictor("gru-lm", documents="line")
    without, reading = whole.read("the cat"), line.read("the cat")
    assert reading.tokens == (*without.tokens, "<eos>")
    assert reading.log_probabilities[:-1] == pytest.approx(without.log_probabilities, abs=1e-5)
    ids = [BOS, *line.tokenizer.encode("the cat")]
    assert reading.log_probabilities[-1] == pytest.approx(after(line.model, ids)[EOS].item(), abs=1e-4)
    assert line.read("").tokens == ("<eos>",)
    nothing = whole.read("")
    assert (nothing.tokens, nothing.log_probabilities, nothing.log_probability) == ((), (), 0.0)
    assert whole.read([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_is_shown_as_it_stands_in_the_text(kind):
    found = predictor("gru-lm", kind).read("the Zebra\nsings")
    assert len(found.tokens) == len(found.log_probabilities)
    shown = "".join(found.tokens).replace("▁", " ").replace("\\n", "\n")
    assert shown == ("theZebra\nsings" if kind == "words" else "the Zebra\nsings")


def test_what_cannot_be_read(refused):
    found = predictor("gru-lm")
    refused("read: found int; a text or a list of texts is needed", found.read, 3)
    refused("read: text 2 is None; a text is needed", found.read, ["a", None])


# writing


@pytest.mark.parametrize("name", SIZES)
def test_what_is_written_is_as_probable_as_the_model_says(name):
    found = predictor(name, longest=40) if name == "gpt" else predictor(name)
    text = found.generate("the ", tokens=9, seed=4)
    ids = list(text.ids)
    before = 1 + len(found.tokenizer.encode("the "))
    assert ids[:before] == [BOS, *found.tokenizer.encode("the ")]
    chosen = [*ids[before:], *([EOS] if text.ended else [])]
    logs = [after(found.model, [*ids[:before], *chosen[:place]])[token].item() for place, token in enumerate(chosen)]
    assert text.log_probability == pytest.approx(sum(logs), abs=1e-4)
    assert text.tokens[0] == "<bos>"
    assert "the " + text.text == found.tokenizer.decode(ids)


def test_greedy_takes_the_most_probable():
    found = predictor("gru-lm")
    text = found.generate("a", tokens=5, greedy=True)
    ids = list(text.ids)
    for place in range(2, len(ids)):
        log = after(found.model, ids[:place])
        log[[0, 1, 2]] = -torch.inf  # <pad>, <unk> and <bos> are never written
        assert ids[place] == log.argmax().item()


def test_a_seed_repeats_its_text_whatever_the_other_prompts():
    found = predictor("gru-lm")
    first = found.generate("the ", tokens=12, seed=7)
    torch.rand(3)
    several = found.generate(["a", "the ", "the "], tokens=12, seed=7)
    assert [text.prompt for text in several] == ["a", "the ", "the "]
    assert several[1].ids == several[2].ids == first.ids
    assert len({found.generate("the ", tokens=12, seed=seed).text for seed in range(5)}) > 1
    assert len({found.generate("the ", tokens=12).text for _ in range(5)}) > 1
    assert found.generate([], tokens=12) == []


@pytest.mark.parametrize("prompt", ["", "the cats ", "☃\n", "a"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_the_text_in_parts(kind, prompt):
    found = predictor("gru-lm", kind)
    for seed in range(3):
        parts = list(found.stream(prompt, tokens=25, seed=seed))
        assert "".join(parts) == found.generate(prompt, tokens=25, seed=seed).text
        assert len(parts) <= 26
    how = {"tokens": 10, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "seed": 2}
    assert "".join(found.stream(prompt, **how)) == found.generate(prompt, **how).text
    assert "".join(found.stream(prompt, tokens=4, greedy=True)) == found.generate(prompt, tokens=4, greedy=True).text


def test_continuations_come_best_first():
    found = predictor("gru-lm")
    texts = found.continuations("the ", tokens=4, beam=20, nbest=6)
    values = [text.log_probability for text in texts]
    assert len({text.ids for text in texts}) == 6
    assert values == sorted(values, reverse=True)
    for text in texts:
        ids = [*text.ids, EOS] if text.ended else list(text.ids)
        logs = [after(found.model, ids[:place])[ids[place]].item() for place in range(5, len(ids))]
        assert text.log_probability == pytest.approx(sum(logs), abs=1e-4)
    (best,) = found.continuations("the ", tokens=4)
    assert found.generate("the ", tokens=4, greedy=True).log_probability <= best.log_probability + 1e-6


# weights


@pytest.mark.parametrize("name", ["attentive-lm", "gpt"])
def test_weights_are_those_of_a_pass_over_prompt_and_text(name):
    found = predictor(name)
    text = found.generate("cats", tokens=7, seed=3, return_weights=True)
    assert text.ids == found.generate("cats", tokens=7, seed=3).ids
    assert text.weights is not None
    with torch.no_grad(), watch(found.model) as seen:
        found.model(torch.tensor([text.ids]))
    for layer, path in zip(text.weights, found.model.attended, strict=True):
        (call,) = seen[path]
        torch.testing.assert_close(layer, call.dense().reshape(layer.shape))
    size = len(text.tokens)
    assert text.weights.shape[-2:] == (size, size)
    assert not text.weights.triu(1).any()
    torch.testing.assert_close(text.weights.sum(-1), torch.ones_like(text.weights[..., 0]))
    (best,) = found.continuations("cats", tokens=3, return_weights=True)
    assert best.weights is not None
    assert best.weights.shape[-1] == len(best.tokens)


def test_an_attention_map_is_of_tokens_by_tokens():
    found = predictor("gpt")
    text = found.generate("cats", tokens=3, greedy=True, return_weights=True)
    record = found.attention_map(text)
    assert record.rows == record.columns == text.tokens
    assert record.title == f"gpt: cats{text.text}"
    assert record.weights.shape == (2, 2, len(text.tokens), len(text.tokens))


def test_weights_that_cannot_be_given_are_refused_before_anything_is_written(refused, monkeypatch):
    found = predictor("gpt")
    steps: list[int] = []
    monkeypatch.setattr(found.model, "step", lambda *_: steps.append(1))
    line = (
        "generate: a prompt of 5 tokens and 7 more; the weights of 11 together at the most can be given, "
        "as gpt reads no more at once"
    )
    for write in (found.generate, found.continuations):
        refused(line, write, "a cat", tokens=7, return_weights=True)
    refused(line, found.generate, ["a", "a cat"], tokens=7, return_weights=True)
    plain = predictor("gru-lm")
    refused("gru-lm: this model has no attention, so no weights to show", plain.generate, return_weights=True)
    assert not steps


def test_as_many_as_the_context_has_can_be_shown():
    text = predictor("gpt").generate("a cat", tokens=6, greedy=True, return_weights=True)
    assert text.weights is not None


def test_a_map_needs_one_text_with_weights(refused):
    found = predictor("gpt")
    line = "attention_map: the text has no weights; generate it with return_weights=True"
    refused(line, found.attention_map, found.generate(tokens=2, seed=1))
    unchecked = inspect.unwrap(TextPredictor.attention_map)
    refused("attention_map: found list; one Text is needed", unchecked, found, [])


# what cannot be


@pytest.mark.parametrize("tokens", [0, -3, 1_000_001])
def test_a_number_of_tokens_that_cannot_be(tokens, refused):
    found = predictor("gru-lm")
    for write in (found.generate, found.stream, found.continuations):
        refused(f"generate: tokens is {tokens}; a number from 1 to 1000000 is needed", write, "a", tokens=tokens)


def test_prompts_that_are_none(refused):
    found = predictor("gru-lm")
    refused("generate: found int; a text or a list of texts is needed", found.generate, 3)
    refused("generate: text 1 is 3; a text is needed", found.generate, [3])
    unchecked = inspect.unwrap(TextPredictor._begun)
    refused("generate: found list; a prompt is a text", unchecked, found, ["a"], 3)


def test_a_stream_says_at_once_what_is_wrong(refused):
    line = "generate: greedy draws nothing; leave out temperature, top_k and top_p, or greedy"
    refused(line, predictor("gru-lm").stream, "a", greedy=True, top_k=3)


def test_a_predictor_is_described_in_a_line(text_run):
    found = load(text_run)
    count = sum(parameter.numel() for parameter in found.model.parameters())
    assert repr(found) == f"TextPredictor(gru-lm, words, {count:,} parameters, on cpu)"
    assert found.name == "gru-lm"


def test_a_trained_model_knows_its_language(text_run):
    found = load(text_run)
    known, strange = found.read(["the cat sees the dog", "dog the the sees cat"])
    assert known.log_probability > strange.log_probability


def test_requests_of_any_lengths_are_answered_together_as_alone(gpt_run):
    model = load(gpt_run)
    prompts = ["the cat", "a", "the dog", ""]
    requests = [Request(prompt, WriteOptions(tokens=3, greedy=True)) for prompt in prompts]
    assert model.answer([]) == []
    answers = model.answer(requests, return_weights=True)
    for prompt, found in zip(prompts, answers, strict=True):
        alone = model.generate(prompt, tokens=3, greedy=True, return_weights=True)
        assert (found.prompt, found.text, found.tokens) == (prompt, alone.text, alone.tokens)
        torch.testing.assert_close(found.weights, alone.weights)
    with pytest.raises(RegardError, match=r"^generate: 3 best of a beam of 2 are too many; set beam to 3 or more$"):
        model.check(WriteOptions(beam=2, nbest=3))
