"""Labeled texts and tagged sentences made ready, what is log of them, and the real loop."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.api import train
from regard.checkpoint import list_checkpoints
from regard.data.tagged import TaggedSentence
from regard.errors import RegardError
from regard.files import read_tensors
from regard.run import Run
from regard.schemes import Scheme, repair_tags
from regard.tasks import find_task, to_recipe
from regard.tasks.label.prepare import load_labeled_split
from regard.tasks.label.settings import LabelData
from regard.tasks.loading import load
from regard.tasks.tag.prepare import drop_unknown_tags, load_tagged_split, sample_validation_indices
from regard.tasks.tag.settings import TagData
from regard.training.prepared import Prepared
from regard.training.reporter import Reporter
from tests.tiny_labels import LABELS, write_data

SMALL: dict[str, Any] = {"hidden": 4, "embedding": 6, "char_width": 4}
SHORT: dict[str, Any] = {"steps": 6, "batch_tokens": 80, "validate_every": 2, "seed": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


def written(folder: Path, name: str, *lines: str) -> str:
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return str(folder / name)


def recipe(task: str, path: object, *, model: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    about = {"task": task, "train": str(path), **sections.get("data", {})}
    sizes = {**SMALL, "attention_heads": 2} if task == "tag" else SMALL
    training = {**SHORT, **sections.get("training", {})}
    return {**sections, "data": about, "model": {**sizes, **(model or {})}, "training": training}


def prepared(table: dict[str, Any], tmp_path: Path, home: Run | None = None) -> tuple[Prepared, list[str]]:
    """Prepare a recipe; return the result and the log lines."""
    run = Run(tmp_path / "said")
    run.path.mkdir(exist_ok=True)
    run.log_file.unlink(missing_ok=True)
    ready = find_task(table).prepare(to_recipe(table, "recipe"), run, home, "cpu", Reporter(run, quiet=True))
    return ready, [line[20:] for line in run.log_file.read_text().splitlines()]  # after the time


# Parts


@pytest.mark.parametrize("task", ["label", "tag"])
def test_what_is_held_out_is_not_trained_on(task, data):
    if task == "label":
        train_part, valid = load_labeled_split(LabelData(train=str(data / "one.tsv"), validation_share=0.2), 5)
        sides = [{example.text for example in part} for part in (train_part, valid)]
        assert {label for example in train_part for label in example.labels} == set(LABELS.values())
    else:
        train_part, valid = load_tagged_split(TagData(train=str(data / "names.bio"), validation_share=0.2), 5)
        sides = [{sentence.words for sentence in part} for part in (train_part, valid)]
    assert not sides[0] & sides[1]
    whole = len(train_part) + len(valid)
    assert whole == (240 if task == "label" else 320)
    assert len(valid) == pytest.approx(0.2 * whole, abs=5)


@given(st.lists(st.integers(0, 6), min_size=2), st.floats(0.01, 0.99), st.integers(0, 9))
def test_sentences_that_are_alike_stay_on_one_side(kinds, share, seed):
    sentences = [TaggedSentence((str(kind),), ("O",)) for kind in kinds]
    held = sample_validation_indices(sentences, share, seed)
    inside = {kinds[index] for index in held}
    assert held == {index for index, kind in enumerate(kinds) if kind in inside}
    different = len(set(kinds))
    if different > 1:
        assert 1 <= len(inside) <= different - 1
        assert abs(len(inside) - share * different) <= 1
    assert held == sample_validation_indices(sentences, share, seed)


def test_a_part_of_its_own_is_taken_whole(data, tmp_path):
    valid = written(tmp_path, "valid.tsv", "a good one\tplus", "bad\tminus")
    splits = load_labeled_split(LabelData(train=str(data / "one.tsv"), validation=valid), 0)
    assert [len(part) for part in splits] == [240, 2]
    tags = written(tmp_path, "valid.bio", "ann\tO", "", "bob\tB-PER")
    assert [len(part) for part in load_tagged_split(TagData(train=str(data / "names.bio"), validation=tags), 0)] == [
        320,
        2,
    ]


# What is log, and what follows


def test_labels_are_said_and_known_by_how_common_they_are(tmp_path):
    texts = [*[f"a {n}\tplus" for n in "qwertz"], "b c\tminus", "b d\tminus", "b e\tminus"]
    path = written(tmp_path, "train.tsv", *texts)
    valid = written(tmp_path, "valid.tsv", "a q\tplus", "b z y\tnew", "é\tminus")
    ready, log = prepared(recipe("label", path, data={"validation": valid, "max_tokens": 1}), tmp_path)
    assert log == [
        "training: 9 examples, no duplicates",
        "training: 2 labels: plus 6 (66.7%), minus 3 (33.3%)",
        "validation: 3 examples, no duplicates",
        "validation: 3 labels: minus 1 (33.3%), new 1 (33.3%), plus 1 (33.3%)",
        "note: validation: the text of 1 example (33.3%) is also in the training data",
        "note: validation: 1 label missing from the training data, so never predicted: new 1",
        "words: 10 known, 14 characters; 33.3% of validation words are unknown",
        "train: 9 texts truncated to 1 words",
    ]
    assert ready.tokenizers.labels == ("plus", "minus")
    assert ready.recipe.model["multi_label"] is False
    with torch.no_grad():
        metrics, _ = ready.validate(built(ready))
    assert metrics["accuracy"] <= 2 / 3  # a label that was never seen cannot be right


def built(ready: Prepared) -> torch.nn.Module:
    from regard.recipe import build_model

    return build_model(ready.recipe, ready.tokenizers).eval()


def test_the_scheme_is_found_out_and_mended_and_said(tmp_path):
    path = written(tmp_path, "t.bio", "a\tB-X", "b\tI-X", "", "c\tI-X", "d\tO", "e\tB-Y", "", "f\tO", "g\tI-Y")
    valid = written(tmp_path, "v.bio", "x\tI-X", "y\tB-Z", "z\tI-Z", "a\tO")
    ready, log = prepared(recipe("tag", path, data={"validation": valid}), tmp_path)
    assert log[-3:] == [
        "tags: BIO (B- begins a span, I- continues it)",
        "note: tags: corrected 2 that did not match BIO, such as I- without a span to continue; "
        "the spans are unchanged",
        "words: 7 known, 11 characters; 75.0% of validation words are unknown",
    ]
    assert "note: validation: 2 tags missing from the training data, so never predicted: B-Z 1, I-Z 1" in log
    assert ready.tokenizers.labels == ("B-X", "B-Y", "O", "I-X")  # I-Y is no longer among them
    assert ready.recipe.model["scheme"] == "BIO"
    sentences = ready.batches.sentences
    assert [sentence.tags for sentence in sentences] == [("B-X", "I-X"), ("B-X", "O", "B-Y"), ("O", "B-Y")]
    assert ready.validate.sentences[0].tags == ("B-X", "O", "O", "O")
    assert ready.validate.gold == [("I-X", "B-Z", "I-Z", "O")]
    with torch.no_grad():
        assert ready.validate(built(ready)).metrics.keys() == {"loss", "accuracy", "f1"}


TAGS = ["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "E-Y", "S-Y"]


@settings(max_examples=60)
@given(
    st.sampled_from(["BIO", "BIOES", "BILOU", "IOB1", "IO"]),
    st.lists(st.lists(st.sampled_from(TAGS), min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(st.sampled_from(TAGS), min_size=1, max_size=6),
)
def test_tags_that_were_never_seen_are_made_such_that_can_be_told(scheme: Scheme, seen, tags):
    """Whatever training has shown, what a model is to tell in validation it can tell, and may."""
    shown, _ = repair_tags(seen, scheme)
    known = ["O", *sorted({tag for sentence_tags in shown for tag in sentence_tags} - {"O"})]
    sentence = TaggedSentence(tuple("abcdef"[: len(tags)]), tuple(tags))
    reduced = drop_unknown_tags(sentence, known, scheme)
    assert reduced.words == sentence.words
    assert set(reduced.tags) <= set(known)
    assert repair_tags([reduced.tags], scheme) == ([reduced.tags], 0)
    (whole,), _ = repair_tags([tags], scheme)
    if set(whole) <= set(known):
        assert reduced.tags == whole


def test_plain_tags_that_were_never_seen_count_as_another():
    assert drop_unknown_tags(TaggedSentence(("a", "b"), ("N", "?")), ["V", "N"], "plain").tags == ("N", "V")
    assert drop_unknown_tags(TaggedSentence(("a", "b"), ("N", "?")), ["V", "O"], "plain").tags == ("O", "O")


def test_spans_of_which_a_tag_was_never_seen_do_not_stop_training(tmp_path):
    """B-X E-X was seen; of B-X I-X E-X nothing can be learned, and S-X, which its rest would be, is not known."""
    path = written(tmp_path, "t.bioes", *["a\tB-X", "b\tE-X", "", "c\tB-X", "d\tE-X", ""])
    valid = written(tmp_path, "v.bioes", "a\tB-X", "b\tI-X", "c\tE-X", "", "d\tB-X", "e\tE-X")
    table = recipe("tag", path, data={"validation": valid}, training={"steps": 2, "validate_every": 1})
    train(table, tmp_path / "run", quiet=True)
    model = load(tmp_path / "run")
    assert set(model.tags) == {"O", "B-X", "E-X"}  # O is known, so that a sentence of one word has an answer
    assert model.predict([["z"]])[0].tags == ("O",)


def test_a_tag_of_another_form_is_refused_before_training(data, tmp_path):
    valid = written(tmp_path, "v.bio", "a\tPERSON")
    with pytest.raises(RegardError) as caught:
        prepared(recipe("tag", data / "names.bio", data={"validation": valid}), tmp_path)
    line = 'tags: expected O, or B-, I-, E-, S-, L- or U- with a type, got "PERSON"'
    assert str(caught.value) == line


def test_weights_are_those_of_the_counts(data, tmp_path):
    texts = [*[f"a {n}\tplus" for n in "qwertzui"], "b c\tminus", "b d\tminus"]
    path, valid = written(tmp_path, "t.tsv", *texts), written(tmp_path, "v.tsv", "a\tplus")
    ready, _ = prepared(recipe("label", path, data={"validation": valid}, training={"class_weights": 1.0}), tmp_path)
    assert ready.step(built(ready), 0.0).weights.tolist() == [0.625, 2.5]
    several = written(tmp_path, "s.tsv", *texts, "a b\tplus|minus")
    ready, _ = prepared(recipe("label", several, data={"validation": valid}, training={"class_weights": 1.0}), tmp_path)
    weights = ready.step(built(ready), 0.0).weights.tolist()
    assert weights == pytest.approx([2 / 9, 8 / 3])  # eleven texts, nine have plus and three minus
    table = recipe("tag", data / "words.bio", model={"crf": False}, training={"class_weights": 1.0})
    ready, _ = prepared(table, tmp_path)
    weights = ready.step(built(ready), 0.0).weights
    counts = Counter(tag for sentence in ready.batches.sentences for tag in sentence.tags)
    products = [counts[tag] * weight for tag, weight in zip(ready.tokenizers.labels, weights.tolist(), strict=True)]
    assert products == pytest.approx([counts.total() / 2] * 2)
    ready, _ = prepared(recipe("label", path, data={"validation": valid}), tmp_path)
    assert ready.step(built(ready), 0.0).weights is None


def test_updates_are_counted_by_the_words_that_are_read(tmp_path):
    """Of pairs both texts; of long texts no more than is read."""
    lines = [f"{'a ' * 60}{n}\t{'b ' * 60}{n}\t{'x' if n % 2 else 'y'}" for n in range(80)]
    path = written(tmp_path, "pairs.tsv", *lines)
    both = {"columns": ("1", "3", "2")}
    every = []
    for data in (both, both | {"max_tokens": 30}, {"columns": ("1", "3")}):
        table = recipe("label", path, data=data) | {"training": {"batch_tokens": 61}}
        ready, _ = prepared(table, tmp_path)
        every.append(ready.recipe.training.validate_every)  # half an epoch: 76 texts are left to train on
    assert every == [76 * 2 * 61 // 61 // 2, 76 * 2 * 30 // 61 // 2, 76 * 61 // 61 // 2]


@pytest.mark.parametrize(("task", "name"), [("pairs", "pairs.tsv"), ("text", "text.txt")])
def test_weights_of_classes_are_for_labels_and_tags(task, name, tmp_path):
    table = {"data": {"train": str(tmp_path / name)}, "training": {"class_weights": 0.5}}
    with pytest.raises(RegardError) as caught:
        train(table, tmp_path / "run", quiet=True)
    line = f"recipe: [training] class_weights is for the tasks tag and label; this recipe is for {task}"
    assert str(caught.value) == line


# What is refused

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("label", {"data": {"source": "a"}}, "recipe: [data] source is for the task pairs; this recipe is for label"),
    ("label", {"data": {"validation_target": "a"}},
     "recipe: [data] validation_target is for the task pairs; this recipe is for label"),
    ("label", {"data": {"documents": "line"}},
     "recipe: [data] documents is for the task text; this recipe is for label"),
    ("tag", {"data": {"separator": ""}}, "recipe: [data] separator is for the task label; this recipe is for tag"),
    ("tag", {"data": {"dialogue": "3"}}, "recipe: [data] dialogue is for the task label; this recipe is for tag"),
    ("tag", {"data": {"context": 2}}, "recipe: [data] context is for the task label; this recipe is for tag"),
    ("tag", {"data": {"max_tokens": 9}},
     "recipe: [data] max_tokens is for the tasks label and pairs; this recipe is for tag"),
    ("label", {"text": {"lowercase": True}},
     "recipe: [text] lowercase is for the tasks text and pairs; this recipe is for label"),
    ("tag", {"text": {"bpe_dropout": 0.1}}, "recipe: [text] bpe_dropout is for the task pairs; this recipe is for tag"),
    ("label", {"text": {"source_tokenizer": "words"}},
     "recipe: [text] source_tokenizer is for the task pairs; this recipe is for label"),
    ("label", {"data": {"validation_share": 0.0}},
     "recipe: [data] validation_share must be above 0 and below 1, got 0.0"),
    ("tag", {"data": {"validation_share": 1.0}},
     "recipe: [data] validation_share must be above 0 and below 1, got 1.0"),
    ("label", {"data": {"train": None}}, "data: training data are required: a file of texts and labels"),
    ("tag", {"data": {"train": None}}, "data: training data are required: a file of words and tags"),
    ("label", {"data": {"context": -1}}, "recipe: [data] context must be at least 0, got -1"),
    ("label", {"training": {"metric": "bleu"}},
     "training.metric bleu is not available for this task; choose from accuracy, macro_f1, loss"),
    ("tag", {"training": {"class_weights": 0.5}},
     "training.class_weights requires a tagger without a CRF; pass --crf false"),
    ("tag", {"training": {"label_smoothing": 0.1}},
     "training.label_smoothing requires a tagger without a CRF; pass --crf false"),
    ("label", {"training": {"class_weights": 2.0}},
     "recipe: [training] class_weights must be from 0 to 1, got 2.0"),
    ("tag", {"model": {"name": "attentive-classifier"}},
     "data.task is tag, but model attentive-classifier is for the task label"),
    ("label", {"model": {"labels": ["a"]}}, "recipe: [model] labels is set by the tokenizer; remove it"),
    ("label", {"model": {"pooling": "men"}},
     'recipe: [model] unknown pooling "men"; did you mean "mean"?'),
]  # fmt: skip


@pytest.mark.parametrize(("task", "sections", "line"), REFUSED)
def test_settings_that_are_refused(task, sections, line, data, tmp_path):
    table = recipe(task, data / ("one.tsv" if task == "label" else "names.bio"), **sections)
    table["data"] = {name: value for name, value in table["data"].items() if value is not None}
    with pytest.raises(RegardError) as caught:
        train(table, tmp_path / "run", quiet=True)
    assert str(caught.value) == line
    assert not (tmp_path / "run").exists()


FILES = [
    ("label", [], "{path} is empty; expected at least one example"),
    ("tag", [], "{path} is empty; expected at least one sentence"),
    ("tag", ["a\tO"], "{path}: expected at least 2 sentences, one for validation, got 1"),
    ("tag", ["a\tO", "", "a\tB-X"], "{path}: expected at least 2 different sentences, one for validation, got 1"),
    ("tag", ["a\tO", "", "b\tO"], 'training data: every tag is "O"; expected at least two different tags'),
    (
        "label",
        ["a\tx", "b\tx"],
        'training data: every label is "x" (2 examples); expected at least two different labels',
    ),
    ("label", ["a\t"], "{path}, line 1: the label is empty; pass --data.on-empty skip to skip such examples"),
]


@pytest.mark.parametrize(("task", "lines", "line"), FILES)
def test_files_that_are_refused(task, lines, line, tmp_path):
    path = written(tmp_path, "data.tsv", *lines)
    with pytest.raises(RegardError) as caught:
        train(recipe(task, path), tmp_path / "run", quiet=True)
    assert str(caught.value) == line.format(path=path)
    assert not (tmp_path / "run").exists()


def test_validation_with_several_labels_where_training_has_one(data, tmp_path):
    valid = written(tmp_path, "valid.tsv", "so so\tplus|minus")
    with pytest.raises(RegardError) as caught:
        prepared(recipe("label", data / "one.tsv", data={"validation": valid}), tmp_path)
    line = 'validation data: "so so": expected one label, as in the training data, got plus, minus'
    assert str(caught.value) == line


# The loop


def stop_after(monkeypatch, step: int) -> None:
    """Let the loop be interrupted behind an update."""
    from regard.training.loop import Trainer

    real = Trainer.update

    def update(self: Trainer) -> None:
        real(self)
        if self.counters.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "update", update)


@pytest.mark.parametrize("name", ["several", "context", "crf"])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(name, data, tmp_path, monkeypatch):
    file = {"several": "several.tsv", "context": "context.tsv", "crf": "names.bio"}[name]
    about = {"context": 2} if name == "context" else {}
    model = {"word_dropout": 0.2, "encoder": "rnn" if name == "context" else "both", "attention_heads": 2}
    table = recipe("tag" if name == "crf" else "label", data / file, model=model, data=about)
    train(table, tmp_path / "whole", quiet=True)
    with monkeypatch.context() as patch:
        stop_after(patch, 3)  # between validations, in the middle of an epoch
        with pytest.raises(KeyboardInterrupt):
            train(table, tmp_path / "parts", quiet=True)
    assert list_checkpoints(Run(tmp_path / "parts"))[-1].step == 3
    train(table, tmp_path / "parts", quiet=True)
    for resumed, whole in zip(*(list_checkpoints(Run(tmp_path / run)) for run in ("parts", "whole")), strict=True):
        for part in ("model", "optimizer"):
            tensors, expected = resumed.load_tensors(part), whole.load_tensors(part)
            assert tensors.keys() == expected.keys()
            assert all(torch.equal(tensors[name], expected[name]) for name in expected), part
    best = [read_tensors(Run(tmp_path / run).model_file) for run in ("parts", "whole")]
    assert all(torch.equal(best[0][name], best[1][name]) for name in best[1])
    lines = [[{**line, "seconds": 0} for line in Run(tmp_path / run).read_metrics()] for run in ("parts", "whole")]
    assert lines[0] == lines[1]
    assert len(lines[0]) == 3


def test_the_threshold_of_the_best_validation_is_kept(label_runs):
    model = load(label_runs["several"])
    table = Run(label_runs["several"]).read_recipe()
    _, valid = load_labeled_split(to_recipe(table, "recipe").data, 0)
    probabilities = model.probabilities(valid)
    gold = torch.tensor([[label in example.labels for label in model.labels] for example in valid])
    threshold = model.model.threshold.item()
    assert threshold != 0.5
    assert probabilities[~gold].max() < threshold <= probabilities[gold].min()  # what a perfect one lies between


def test_tuning_takes_over_words_and_parameters_and_refuses_what_is_new(label_runs, tmp_path):
    table: dict[str, Any] = {
        "data": {"train": str(label_runs["one"].parent / "one.tsv"), "validation_share": 0.2},
        "training": {"steps": 1, "validate_every": 1, "batch_tokens": 300, "learning_rate": 1e-9},
    }
    train(table, tmp_path / "tuned", base=label_runs["one"], quiet=True)
    before, after = (read_tensors(Run(run).model_file) for run in (label_runs["one"], tmp_path / "tuned"))
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
    assert load(tmp_path / "tuned").vocabulary.words == load(label_runs["one"]).vocabulary.words
    for base, lines, line in (
        ("one", ["a b\tplus", "c\tgood", "d\tplus", "e\tgood"], 'label "good"'),
        ("crf", ["a\tO", "b\tB-ORG", "", "c\tO", "d\tB-ORG"], 'tag "B-ORG"'),
    ):
        table["data"]["train"] = written(tmp_path, f"{base}.tsv", *lines)
        with pytest.raises(RegardError) as caught:
            train(table, tmp_path / "other", base=label_runs[base], quiet=True)
        known = ", ".join(load(label_runs[base]).vocabulary.labels)
        assert str(caught.value) == f"data: unknown {line}; {label_runs[base]} has {known}"


def test_other_data_are_not_gone_on_with(data, tmp_path):
    path = tmp_path / "one.tsv"
    path.write_text((data / "one.tsv").read_text())
    train(recipe("label", path, training={"steps": 2}), tmp_path / "run", quiet=True)
    path.write_text((data / "one.tsv").read_text() + "good\tminus\n")
    with pytest.raises(RegardError) as caught:
        train(recipe("label", path, training={"steps": 4}), tmp_path / "run", quiet=True)
    run = tmp_path / "run"
    assert (
        str(caught.value)
        == f"{run}: cannot resume: run was started with other data; choose another --out, or pass --from {run}"
    )


def test_seeds_decide_what_is_held_out(data):
    parts = [
        load_labeled_split(LabelData(train=str(data / "one.tsv"), validation_share=0.2), seed)[1] for seed in (1, 1, 2)
    ]
    assert parts[0] == parts[1] != parts[2]
