"""Models that copy, through training, the commands and the API."""

import json
from pathlib import Path

import jaxtyping
import pytest

from regard.api import explain, look, train
from regard.batch import UNKNOWN, Pair
from regard.cli import main
from regard.tasks.loading import load
from regard.tasks.pairs.explain import drop_source_unit
from regard.text.units import TextUnit

MODELS = {
    "simple-attention": {"hidden": 8, "embedding": 8},
    "bahdanau": {"hidden": 8, "embedding": 8},
    "luong-dot": {"hidden": 8, "embedding": 8},
    "transformer": {"width": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 2},
}
WORDS = ["abba", "abab", "cab", "dacab", "bad", "dad", "bac", "cc", "abcd", "dcba", "acdc", "bbb"]


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> Path:
    """Pairs of a word and the same word with an ending."""
    path = tmp_path_factory.mktemp("copied") / "pairs.tsv"
    path.write_text("".join(f"{word}\t{word}s\n" for word in WORDS))
    return path


@pytest.fixture(scope="module", params=MODELS)
def run(request, copied) -> Path:
    """A model that copies, hardly trained, and trained on after a stop."""
    folder = copied.parent / request.param
    recipe = {
        "data": {"train": str(copied), "validation_share": 0.2},
        "model": {"name": request.param, **MODELS[request.param]},
        "training": {"steps": 2, "validate_every": 1},
    }
    train(recipe, folder, quiet=True)
    train({**recipe, "training": {"steps": 3, "validate_every": 1}}, folder, quiet=True)
    return folder


def test_what_targets_mostly_copy_is_copied_by_default(run):
    model = load(run)
    assert model.model.copies
    assert model.recipe.model["copy"] is True


def test_answers_say_what_was_generated(run):
    model = load(run)
    answer = model.predict("abßc", nbest=2, max_length=6)
    for target in answer.alternatives:
        assert len(target.generated) == len(target.target_tokens)
        assert all(0 < share < 1 for share in target.generated)
        (forced,) = model.force(["abßc"], [target.text])
        if forced.pair == target.pair and target.target_tokens[-1] == "<eos>":
            assert forced.log_probability == pytest.approx(target.log_probability, abs=1e-4)
    record = json.loads(json.dumps(answer.record()))
    assert record["generated"] == pytest.approx(list(answer.generated))


def test_unknown_tokens_of_the_source_can_be_forced(run):
    model = load(run)
    known, unknown = model.force(["aßb", "aßb"], ["aßb", "añb"])
    size = model.tokenizers.target.size
    assert known.pair.target[1] == known.pair.copy_ids[1] == size
    assert unknown.pair.target[1] == UNKNOWN
    assert known.target_tokens == ("a", "ß", "b", "<eos>")


def test_a_look_shows_what_was_generated(run):
    picture = look(load(run), "aßb", target="aßbs")
    assert len(picture.generated) == len(picture.rows) == 5
    assert "row ends: probability to generate the token, not copy it" in picture.draw()
    assert type(picture).from_record(picture.record()) == picture
    assert picture.rows[1] == "ß"


def test_an_explanation_leaves_out_tokens_that_only_the_source_has(run):
    explanation = explain(load(run), "aßb", target="aßb")
    assert list(explanation.words) == ["a", "ß", "b"]


def test_without_a_unit_its_copies_are_unknown():
    units = [TextUnit("a", (0,)), TextUnit("ß", (1,)), TextUnit("b", (2,))]
    pair = Pair([5, 1, 6], [4, 11, 5], [4, 11, 5])
    assert drop_source_unit(pair, units, 1) == Pair([5, 6], [4, UNKNOWN, 5], [4, 5])
    assert drop_source_unit(pair, units, 0) == Pair([1, 6], [4, 11, 5], [11, 5])
    assert drop_source_unit(pair, units, None) == pair


@pytest.mark.slow
def test_letters_never_seen_are_copied(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    letters, others = "abcdefgh", "xyßж"
    words = [letters[i] + letters[j] + letters[k] for i in range(8) for j in range(8) for k in range(0, 8, 2)]
    (tmp_path / "train.tsv").write_text("".join(f"{word}\t{word}\n" for word in words))
    new = [a + b + c for a in "ah" for b in others for c in others]
    (tmp_path / "new.txt").write_text("\n".join(new) + "\n")
    sizes = ["--hidden", "32", "--embedding", "32", "--training.validate-every", "200"]
    right = {}
    for copy, steps in (("yes", "200"), ("no", "5")):  # without copying, no training helps: they are in no vocabulary
        out = str(tmp_path / copy)
        options = ["--copy", copy, *sizes, "--steps", steps, "--text.hide", "0.1", "--out", out, "--quiet"]
        assert main(["train", str(tmp_path / "train.tsv"), *options]) == 0
        capsys.readouterr()
        assert main(["predict", out, "--source", str(tmp_path / "new.txt"), "--quiet"]) == 0
        answers = capsys.readouterr().out.splitlines()
        right[copy] = sum(answer == word for answer, word in zip(answers, new, strict=True))
    assert right["yes"] > 0.9 * len(new)
    assert right["no"] == 0
