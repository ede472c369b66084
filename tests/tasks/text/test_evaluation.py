"""Scores of a text against a loop over its documents, one token at a time."""

import json
import math

import numpy as np
import pytest
import torch

from regard.batch import BOS, EOS, PAD
from regard.data import segments
from regard.data.documents import read_documents
from regard.errors import RegardError
from regard.models import LanguageModel, build
from regard.tasks.text.evaluation import evaluate_text_file, resolve_window, thin_windows
from regard.tasks.text.predictor import TextPredictor
from regard.tasks.text.settings import TextData, TextRecipe
from regard.text import TokenizerPair
from regard.text.learn import learn_lm_tokenizer

LINES = ["the cat sees the dog", "a bird", "", "the dog sleeps and a bird sings all day", "x", "cats"]
TOKENIZER = learn_lm_tokenizer("characters", ["the cat sees dog bird sleeps and sings all day"])
SIZES = {
    "neural-lm": {"hidden": 6, "embedding": 5, "window": 3},
    "gru-lm": {"hidden": 6, "embedding": 5},
    "lstm-lm": {"hidden": 6, "embedding": 5},
    "attentive-lm": {"hidden": 6, "embedding": 5, "window": 4},
    "gpt": {"width": 8, "heads": 2, "layers": 1, "context_length": 10},
}


def predictor(name: str, documents: str = "line", tokenizer=TOKENIZER) -> TextPredictor:
    torch.manual_seed(1)
    model = build(name, vocab_size=tokenizer.size, **SIZES[name]).eval()
    assert isinstance(model, LanguageModel)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    recipe = TextRecipe(model={"name": name}, data=TextData(documents=documents))  # type: ignore[arg-type]
    return TextPredictor(model, TokenizerPair(tokenizer, tokenizer), recipe, {})


@pytest.fixture
def path(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(LINES) + "\n")
    return tmp_path / "text.txt"


def documents_of(text: str) -> list[list[int]]:
    """Return each line as a document of token ids."""
    return [[BOS, *TOKENIZER.encode(line), EOS] for line in text.splitlines() if line.strip()]


def nats_of(model: torch.nn.Module, ids: list[int], *, context: int, stride: int) -> float:
    """-log p of a document: a token of block b is read from as far back as `context` lets all of the block see."""
    total = 0.0
    for index in range(1, len(ids)):
        start = max(0, (index - 1) // stride * stride - (context - stride))
        with torch.no_grad():
            logits = model(torch.tensor([ids[start:index]]))[0]
        total -= logits[0, -1].double().log_softmax(-1)[ids[index]].item()
    return total


def values(report) -> dict[str, float]:
    return {score.name: score.value for score in report.scores}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(("context", "stride"), [(None, None), (10, 5), (9, 9), (5, 1), (7, 4)])
def test_a_text_costs_what_its_documents_do_one_token_at_a_time(name, context, stride, path):
    model = predictor(name)
    report = evaluate_text_file(model, path, context_length=context, stride=stride)
    documents = documents_of(path.read_text())
    context, stride = (context or 10, stride or 5) if name == "gpt" else (context or 999, stride or 999)
    nats = sum(nats_of(model.model, ids, context=context, stride=stride) for ids in documents)
    tokens, words = sum(len(ids) - 1 for ids in documents), sum(len(line.split()) for line in LINES)
    characters = sum(map(len, LINES))
    assert values(report) == pytest.approx(
        {
            "loss": nats / tokens,
            "perplexity per token": math.exp(nats / tokens),
            "perplexity per word": math.exp(nats / words),
            "bits per character": nats / characters / math.log(2),
        },
        rel=1e-4,
    )


@pytest.mark.parametrize("name", ["gru-lm", "attentive-lm", "gpt"])
def test_the_size_of_batches_changes_nothing(name, path, monkeypatch):
    model = predictor(name)
    expected = evaluate_text_file(model, path)
    for tokens in (1, 30, 100):
        monkeypatch.setattr("regard.tasks.text.evaluation.TOKENS", tokens)
        report = evaluate_text_file(model, path)
        assert values(report) == pytest.approx(values(expected), rel=1e-5)
        for one, other in zip(report.distances, expected.distances, strict=True):
            assert (one.name, one.signature) == (other.name, other.signature)
            assert one.value == pytest.approx(other.value, rel=1e-5)


def test_the_stride_changes_nothing_where_all_is_read_before(path):
    model = predictor("lstm-lm", "file")
    whole = values(evaluate_text_file(model, path))
    for stride in (1, 7, 50):
        assert values(evaluate_text_file(model, path, context_length=200 + stride, stride=stride)) == pytest.approx(
            whole
        )


@pytest.mark.parametrize("name", ["gru-lm", "gpt"])
def test_every_target_is_scored_once(name, path, monkeypatch):
    """Count the targets that the model is asked for, by what they are."""
    targets: list[int] = []
    counts: list[int] = []
    real = segments.iter_positioned_batches

    def counting(*arguments, **options):
        for group in real(*arguments, **options):
            targets.extend(token for batch, _ in group for token in batch.targets[batch.targets != PAD].tolist())
            yield group

    monkeypatch.setattr("regard.tasks.text.evaluation.iter_positioned_batches", counting)
    monkeypatch.setattr("regard.tasks.text.evaluation.measure_loss_by_distance", lambda *_: [])
    expected = sorted(token for ids in documents_of(path.read_text()) for token in ids[1:])
    for context, stride in [(10, 3), (10, 10), (2, 1)]:
        targets.clear()
        evaluate_text_file(predictor(name), path, context_length=context, stride=stride, progress=counts.append)
        assert sorted(targets) == expected
        assert counts[-1] == len(expected)


def test_the_conditions_are_said_after_each_score(path):
    report = evaluate_text_file(predictor("gpt"), path)
    conditions = "context:10|stride:5|documents:line|unknown:1"  # the x
    assert [score.signature for score in report.scores] == [
        f"nats per token|{conditions}",
        f"tokens:75|{conditions}",
        f"words:18|{conditions}",
        f"characters:70|{conditions}",
    ]
    path.write_text("cats")
    report = evaluate_text_file(predictor("gru-lm"), path, documents="file", context_length=8, stride=2)
    assert report.scores[0].signature == "nats per token|context:8|stride:2|documents:file"


def test_what_a_document_is_can_be_told(path):
    model = predictor("gru-lm")
    text = path.read_text()
    assert text == "".join(chunk.text for chunk in read_documents(path))
    ids = [BOS, *TOKENIZER.encode(text), EOS]
    loss = values(evaluate_text_file(model, path, documents="file"))["loss"]
    expected = nats_of(model.model, ids, context=999, stride=999) / (len(ids) - 1)
    assert loss == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["gru-lm", "gpt"])
def test_loss_by_distance_is_that_of_windows_that_begin_anew(name, path, monkeypatch):
    monkeypatch.setattr("regard.tasks.text.evaluation.FARTHEST", 10)
    model = predictor(name)
    report = evaluate_text_file(model, path)
    sums: dict[int, list[float]] = {}
    for ids in documents_of(path.read_text()):
        for index in range(1, len(ids)):
            start = (index - 1) // 10 * 10
            with torch.no_grad():
                logits = model.model(torch.tensor([ids[start:index]]))[0]
            value = -logits[0, -1].double().log_softmax(-1)[ids[index]].item()
            sums.setdefault(index - start, []).append(value)
    bands = {"1 token": [1], "2 tokens": [2], "3-4 tokens": [3, 4], "5-8 tokens": [5, 6, 7, 8], "9-10 tokens": [9, 10]}
    assert [score.name for score in report.distances] == [f"loss after {band}" for band in bands]
    for score, indices in zip(report.distances, bands.values(), strict=True):
        all_values = [value for index in indices for value in sums[index]]
        assert score.value == pytest.approx(sum(all_values) / len(all_values), rel=1e-4)
        assert score.signature == f"targets:{len(all_values)}"
    counts = [int(score.signature.removeprefix("targets:")) for score in report.distances]
    assert sum(counts) == 75  # every target of the text


def test_windows_are_spread_over_a_long_text():
    windows = np.arange(1000)[:, None] + np.arange(3)
    assert thin_windows(windows, 256).tolist() == windows[::4].tolist()
    assert thin_windows(windows[:3], 256).tolist() == windows[:3].tolist()
    assert thin_windows(windows[:257], 256).tolist() == windows[:257:2].tolist()
    assert thin_windows(windows[:0], 256).tolist() == []


@pytest.mark.parametrize(
    ("name", "context", "stride", "expected"),
    [
        ("gpt", None, None, (10, 5)),
        ("gpt", 1, None, (1, 1)),
        ("gpt", 7, None, (7, 3)),
        ("gpt", None, 10, (10, 10)),
        ("gru-lm", None, None, (4608, 4096)),
        ("gru-lm", None, 100, (612, 100)),
        ("gru-lm", 2000, None, (2000, 1488)),
        ("gru-lm", 600, None, (600, 300)),  # no less than half, or a short context would take for ever
        ("gru-lm", 1, None, (1, 1)),
        ("gru-lm", 9, 4, (9, 4)),
    ],
)
def test_context_and_stride_unless_told(name, context, stride, expected):
    assert resolve_window(predictor(name), context, stride) == expected


@pytest.mark.parametrize(
    ("name", "context", "stride", "line"),
    [
        ("gpt", 11, None, "evaluate: context_length must be from 1 to 10 for gpt, got 11"),
        ("gpt", 0, None, "evaluate: context_length must be from 1 to 10 for gpt, got 0"),
        ("gru-lm", 0, None, "evaluate: context_length must be at least 1 for gru-lm, got 0"),
        ("gpt", None, 11, "evaluate: stride must be from 1 to context_length (10), got 11"),
        ("gpt", 4, 0, "evaluate: stride must be from 1 to context_length (4), got 0"),
        ("gru-lm", None, -600, "evaluate: stride must be from 1 to context_length (513), got -600"),
    ],
)
def test_windows_that_cannot_be(name, context, stride, line, path):
    with pytest.raises(RegardError) as caught:
        evaluate_text_file(predictor(name), path, context_length=context, stride=stride)
    assert str(caught.value) == line


def test_a_report_as_lines_and_as_json(path):
    report = evaluate_text_file(predictor("gpt"), path)
    lines = report.lines()
    assert lines[0] == f"loss {report.scores[0].value:.4f} ({report.scores[0].signature})"
    assert len(lines) == len(report.scores) + len(report.distances)
    record = json.loads(json.dumps(report.to_json()))
    assert [score["name"] for score in record["scores"]] == [score.name for score in report.scores]
    assert [score["value"] for score in record["by_distance"]] == [score.value for score in report.distances]


def test_a_text_that_is_not_there(tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    for path, line in (
        (tmp_path / "none.txt", f"cannot read {tmp_path}/none.txt: not found"),
        (tmp_path / "empty.txt", f"{tmp_path}/empty.txt: no text"),
    ):
        with pytest.raises(RegardError) as caught:
            evaluate_text_file(predictor("gru-lm"), path)
        assert str(caught.value) == line
