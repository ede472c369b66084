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
from regard.tasks.text.options import GenerationOptions
from regard.tasks.text.predictor import TextPredictor
from regard.tasks.text.settings import TextData, TextRecipe
from regard.text import KINDS, TokenizerPair
from regard.text.learn import learn_lm_tokenizer
from regard.text.tokenizer import Kind

TEXTS = ["the cat sees the dog", "a dog sings, and the cats sing ☃\n", "cats and dogs sleep\n"] * 3
TOKENIZERS = {kind: learn_lm_tokenizer(kind, TEXTS, vocab_size=None if kind == "bytes" else 290) for kind in KINDS}
LONG = "the cats sing and the dogs sleep, the dog sees a cat"
SIZES = {
    "neural-lm": {"hidden": 6, "embedding": 5, "window": 3},
    "rnn-lm": {"hidden": 6, "embedding": 5},
    "gru-lm": {"hidden": 6, "embedding": 5},
    "lstm-lm": {"hidden": 6, "embedding": 5, "layers": 2},
    "attentive-lm": {"hidden": 6, "embedding": 5, "window": 4},
    "gpt": {"width": 8, "heads": 2, "layers": 2, "context_length": 12},
}


def predictor(name: str = "gpt", kind: Kind = "characters", documents: str = "file", **sizes: object) -> TextPredictor:
    """A model with random parameters, large enough for it to have opinions."""
    torch.manual_seed(1)
    tokenizer = TOKENIZERS[kind]
    model = build(name, vocab_size=tokenizer.size, **{**SIZES[name], **sizes}).eval()
    assert isinstance(model, LanguageModel)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    recipe = TextRecipe(model={"name": name}, data=TextData(documents=documents))  # type: ignore[arg-type]
    return TextPredictor(model, TokenizerPair(tokenizer, tokenizer), recipe, {})


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


# scoring


@pytest.mark.parametrize("segment", [3, 2048])
@pytest.mark.parametrize("name", [name for name in SIZES if name != "gpt"])
def test_each_token_is_read_after_all_before_it(name, segment, monkeypatch):
    monkeypatch.setattr("regard.tasks.text.predictor.SEGMENT", segment)
    model = predictor(name)
    scored = model.score_texts(LONG)
    ids = [BOS, *model.tokenizer.encode(LONG)]
    expected = [after(model.model, ids[:index])[ids[index]].item() for index in range(1, len(ids))]
    assert scored.log_probabilities == pytest.approx(expected, abs=1e-4)
    assert scored.log_probability == pytest.approx(sum(expected), abs=1e-3)
    assert scored.tokens == tuple(LONG.replace(" ", "▁"))


@pytest.mark.parametrize("context_length", [1, 2, 7, 12, 60])
def test_beyond_the_context_each_token_is_read_after_half_of_it_at_least(context_length):
    model = predictor("gpt", context_length=context_length)
    ids = [BOS, *model.tokenizer.encode(LONG)]
    half = context_length // 2
    new = context_length - half  # tokens of each window that were not scored in the one before
    expected = []
    for index in range(1, len(ids)):
        start = max(0, (index - 1) // new * new - half)
        assert min(index, half + 1) <= index - start <= context_length
        expected.append(after(model.model, ids[start:index])[ids[index]].item())
    assert model.score_texts(LONG).log_probabilities == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["gru-lm", "attentive-lm", "gpt"])
@pytest.mark.parametrize("tokens", [1, 40, 8192])
def test_nothing_depends_on_the_others_of_a_batch(name, tokens, monkeypatch):
    texts = ["cats", "", LONG, "the dog", LONG[5:40], "a", LONG[:13]]
    model = predictor(name)
    expected = [model.score_texts(text) for text in texts]
    monkeypatch.setattr("regard.tasks.text.predictor.TOKENS", tokens)
    for batch in (texts, texts[::-1]):
        counts: list[int] = []
        all_scored = model.score_texts(batch, progress=counts.append)
        assert [scored.text for scored in all_scored] == batch
        for scored in all_scored:
            alone = expected[texts.index(scored.text)]
            assert scored.tokens == alone.tokens
            assert scored.log_probabilities == pytest.approx(alone.log_probabilities, abs=1e-5)
        assert counts[-1] == len(texts)
        assert counts == sorted(counts)


def test_the_end_counts_where_a_line_is_a_document():
    whole, line = predictor("gru-lm"), predictor("gru-lm", documents="line")
    without, scored = whole.score_texts("the cat"), line.score_texts("the cat")
    assert scored.tokens == (*without.tokens, "<eos>")
    assert scored.log_probabilities[:-1] == pytest.approx(without.log_probabilities, abs=1e-5)
    ids = [BOS, *line.tokenizer.encode("the cat")]
    assert scored.log_probabilities[-1] == pytest.approx(after(line.model, ids)[EOS].item(), abs=1e-4)
    assert line.score_texts("").tokens == ("<eos>",)
    nothing = whole.score_texts("")
    assert (nothing.tokens, nothing.log_probabilities, nothing.log_probability) == ((), (), 0.0)
    assert whole.score_texts([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_is_shown_as_it_stands_in_the_text(kind):
    scored = predictor("gru-lm", kind).score_texts("the Zebra\nsings")
    assert len(scored.tokens) == len(scored.log_probabilities)
    shown = "".join(scored.tokens).replace("▁", " ").replace("\\n", "\n")
    assert shown == ("theZebra\nsings" if kind == "words" else "the Zebra\nsings")


def test_what_cannot_be_read(refused):
    model = predictor("gru-lm")
    refused("score_texts: expected a string or a list of strings, got int", model.score_texts, 3)
    refused("score_texts: text 2: expected a string, got NoneType", model.score_texts, ["a", None])


# writing


@pytest.mark.parametrize("name", SIZES)
def test_what_is_written_is_as_probable_as_the_model_says(name):
    model = predictor(name, context_length=40) if name == "gpt" else predictor(name)
    text = model.generate("the ", max_tokens=9, seed=4)
    ids = list(text.ids)
    before = 1 + len(model.tokenizer.encode("the "))
    assert ids[:before] == [BOS, *model.tokenizer.encode("the ")]
    chosen = [*ids[before:], *([EOS] if text.ended else [])]
    logs = [after(model.model, [*ids[:before], *chosen[:index]])[token].item() for index, token in enumerate(chosen)]
    assert text.log_probability == pytest.approx(sum(logs), abs=1e-4)
    assert text.tokens[0] == "<bos>"
    assert "the " + text.text == model.tokenizer.decode(ids)


def test_greedy_takes_the_most_probable():
    model = predictor("gru-lm")
    text = model.generate("a", max_tokens=5, greedy=True)
    ids = list(text.ids)
    for index in range(2, len(ids)):
        log = after(model.model, ids[:index])
        log[[0, 1, 2]] = -torch.inf  # <pad>, <unk> and <bos> are never written
        assert ids[index] == log.argmax().item()


def test_a_seed_repeats_its_text_whatever_the_other_prompts():
    model = predictor("gru-lm")
    first = model.generate("the ", max_tokens=12, seed=7)
    torch.rand(3)
    generated = model.generate(["a", "the ", "the "], max_tokens=12, seed=7)
    assert [text.prompt for text in generated] == ["a", "the ", "the "]
    assert generated[1].ids == generated[2].ids == first.ids
    assert len({model.generate("the ", max_tokens=12, seed=seed).text for seed in range(5)}) > 1
    assert len({model.generate("the ", max_tokens=12).text for _ in range(5)}) > 1
    assert model.generate([], max_tokens=12) == []


@pytest.mark.parametrize("prompt", ["", "the cats ", "☃\n", "a"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_the_text_in_parts(kind, prompt):
    model = predictor("gru-lm", kind)
    for seed in range(3):
        parts = list(model.stream(prompt, max_tokens=25, seed=seed))
        assert "".join(parts) == model.generate(prompt, max_tokens=25, seed=seed).text
        assert len(parts) <= 26
    how = {"max_tokens": 10, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "seed": 2}
    assert "".join(model.stream(prompt, **how)) == model.generate(prompt, **how).text
    assert (
        "".join(model.stream(prompt, max_tokens=4, greedy=True))
        == model.generate(prompt, max_tokens=4, greedy=True).text
    )


def test_continuations_come_best_first():
    model = predictor("gru-lm")
    texts = model.continuations("the ", max_tokens=4, beam=20, nbest=6)
    values = [text.log_probability for text in texts]
    assert len({text.ids for text in texts}) == 6
    assert values == sorted(values, reverse=True)
    for text in texts:
        ids = [*text.ids, EOS] if text.ended else list(text.ids)
        logs = [after(model.model, ids[:index])[ids[index]].item() for index in range(5, len(ids))]
        assert text.log_probability == pytest.approx(sum(logs), abs=1e-4)
    (best,) = model.continuations("the ", max_tokens=4)
    assert model.generate("the ", max_tokens=4, greedy=True).log_probability <= best.log_probability + 1e-6


# weights


@pytest.mark.parametrize("name", ["attentive-lm", "gpt"])
def test_weights_are_those_of_a_pass_over_prompt_and_text(name):
    model = predictor(name)
    text = model.generate("cats", max_tokens=7, seed=3, return_weights=True)
    assert text.ids == model.generate("cats", max_tokens=7, seed=3).ids
    assert text.weights is not None
    with torch.no_grad(), watch(model.model) as recorded:
        model.model(torch.tensor([text.ids]))
    for layer, path in zip(text.weights, model.model.default_attention, strict=True):
        (call,) = recorded[path]
        torch.testing.assert_close(layer, call.dense().reshape(layer.shape))
    size = len(text.tokens)
    assert text.weights.shape[-2:] == (size, size)
    assert not text.weights.triu(1).any()
    torch.testing.assert_close(text.weights.sum(-1), torch.ones_like(text.weights[..., 0]))
    (best,) = model.continuations("cats", max_tokens=3, return_weights=True)
    assert best.weights is not None
    assert best.weights.shape[-1] == len(best.tokens)


def test_an_attention_map_is_of_tokens_by_tokens():
    model = predictor("gpt")
    text = model.generate("cats", max_tokens=3, greedy=True, return_weights=True)
    record = model.attention_map(text)
    assert record.rows == record.columns == text.tokens
    assert record.title == f"gpt: cats{text.text}"
    assert record.weights.shape == (2, 2, len(text.tokens), len(text.tokens))


def test_weights_that_cannot_be_given_are_refused_before_anything_is_written(refused, monkeypatch):
    model = predictor("gpt")
    steps: list[int] = []
    monkeypatch.setattr(model.model, "step", lambda *_: steps.append(1))
    line = "generate: return_weights is limited to 11 tokens for gpt, got 5 in the prompt and max_tokens=7"
    for write in (model.generate, model.continuations):
        refused(line, write, "a cat", max_tokens=7, return_weights=True)
    refused(line, model.generate, ["a", "a cat"], max_tokens=7, return_weights=True)
    plain = predictor("gru-lm")
    refused("gru-lm has no attention weights to show", plain.generate, return_weights=True)
    assert not steps


def test_as_many_as_the_context_has_can_be_shown():
    text = predictor("gpt").generate("a cat", max_tokens=6, greedy=True, return_weights=True)
    assert text.weights is not None


def test_a_map_needs_one_text_with_weights(refused):
    model = predictor("gpt")
    line = "attention_map: the text has no weights; pass return_weights=True to generate"
    refused(line, model.attention_map, model.generate(max_tokens=2, seed=1))
    unchecked = inspect.unwrap(TextPredictor.attention_map)
    refused("attention_map: expected a GeneratedText, got list", unchecked, model, [])


# what cannot be


@pytest.mark.parametrize("tokens", [0, -3, 1_000_001])
def test_a_number_of_tokens_that_cannot_be(tokens, refused):
    model = predictor("gru-lm")
    for write in (model.generate, model.stream, model.continuations):
        bound = "at most 1,000,000" if tokens > 0 else "at least 1"
        refused(f"generate: max_tokens must be {bound}, got {tokens:,}", write, "a", max_tokens=tokens)


def test_prompts_that_are_none(refused):
    model = predictor("gru-lm")
    refused("generate: expected a string or a list of strings, got int", model.generate, 3)
    refused("generate: text 1: expected a string, got int", model.generate, [3])
    unchecked = inspect.unwrap(TextPredictor._encode_prompt)
    refused("generate: expected a string, got list", unchecked, model, ["a"], 3)


def test_a_stream_says_at_once_what_is_wrong(refused):
    line = "generate: greedy cannot be combined with temperature, top_k or top_p"
    refused(line, predictor("gru-lm").stream, "a", greedy=True, top_k=3)


def test_a_predictor_is_described_in_a_line(text_run):
    model = load(text_run)
    count = sum(parameter.numel() for parameter in model.model.parameters())
    assert repr(model) == f"TextPredictor(gru-lm, words, {count:,} parameters, on cpu)"
    assert model.name == "gru-lm"


def test_a_trained_model_knows_its_language(text_run):
    model = load(text_run)
    known, strange = model.score_texts(["the cat sees the dog", "dog the the sees cat"])
    assert known.log_probability > strange.log_probability


def test_requests_of_any_lengths_are_answered_together_as_alone(gpt_run):
    model = load(gpt_run)
    prompts = ["the cat", "a", "the dog", ""]
    requests = [Request(prompt, GenerationOptions(max_tokens=3, greedy=True)) for prompt in prompts]
    assert model.answer([]) == []
    answers = model.answer(requests, return_weights=True)
    for prompt, text in zip(prompts, answers, strict=True):
        alone = model.generate(prompt, max_tokens=3, greedy=True, return_weights=True)
        assert (text.prompt, text.text, text.tokens) == (prompt, alone.text, alone.tokens)
        torch.testing.assert_close(text.weights, alone.weights)
    with pytest.raises(RegardError, match=r"^generate: nbest must be at most beam \(2\), got 3$"):
        model.check(GenerationOptions(beam=2, nbest=3))


def test_predict_is_answered_with_the_two_methods_it_could_mean():
    line = r"no attribute 'predict'; use generate\(prompt\) to continue a text, or score_texts\(texts\) for log-prob"
    with pytest.raises(AttributeError, match=line):
        predictor().predict("the")
    assert not hasattr(predictor(), "predict")


def test_a_model_of_characters_explains_characters():
    explanation = predictor().explain("the ca")
    assert explanation.description.startswith('character 5, "a", probability ')
    assert explanation.format_lines()[1].split()[0] == "character"
    assert explanation.words == tuple("the c".replace(" ", "␣")) or explanation.words[:3] == ("t", "h", "e")
    words = predictor(kind="words").explain("the cat sees")
    assert words.description.startswith('word 2, "sees", probability ')
    assert words.format_lines()[1].split()[0] == "word"
    with pytest.raises(
        RegardError, match=r"^explain: the character to explain must have at least one character before"
    ):
        predictor().explain("t")
