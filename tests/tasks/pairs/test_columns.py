"""A toy language whose forms depend on features, through the commands: `PL` adds s, `PST` adds ed, `NEG` adds un."""

import io
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from regard import RegardError, load, train
from regard.cli import main
from regard.run import Run
from regard.serve.served_models import start_model
from regard.serve.settings import ServeSettings
from tests.serve.running import running

SETTINGS = [
    *["--model", "simple-attention", "--hidden", "48", "--embedding", "48", "--bidirectional", "--dropout", "0"],
    *["--steps", "220", "--learning-rate", "0.02", "--warmup-steps", "20", "--batch-tokens", "600"],
    *["--validate-every", "220", "--max-validation", "20", "--device", "cpu"],
]
TINY = ["--model", "simple-attention", "--hidden", "4", "--embedding", "4", "--steps", "1", "--validate-every", "1"]


def inflect(stem: str, features: str) -> str:
    form = stem + {"PL": "s", "PST": "ed", "SG": ""}[features.split(";")[-1]]
    return f"un{form}" if "NEG" in features.split(";") else form


def make_rows(count: int, seed: int) -> list[tuple[str, str, str]]:
    """Lemma, form and features; the stems of two seeds may overlap, hardly ever their rows."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        stem = "".join(map(draw.choice, ("bdgkmpt", "aeiou", "lnrsv")))
        stem += draw.choice(["", "a", "o"])
        features = ";".join((draw.choice(["V", "V;NEG"]), draw.choice(["SG", "PL", "PST"])))
        rows.append((stem, inflect(stem, features), features))
    return rows


def write(path: Path, rows: Sequence[tuple[str, ...]]) -> str:
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def toy(share) -> Path:
    """A folder with a run trained by the command on a file of three columns, without a word about them."""

    def fill(folder: Path) -> None:
        data = write(folder / "train.tsv", make_rows(700, 0))
        write(folder / "test.tsv", make_rows(60, 1))
        assert main(["train", data, "--out", str(folder / "run"), "--quiet", *SETTINGS]) == 0

    return share("toy-inflection", fill)


def output(capsys, *arguments: object) -> tuple[str, str]:
    assert main(list(map(str, arguments))) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.mark.slow
def test_the_check_says_what_the_columns_are_and_how_to_say_otherwise(toy):
    log = (toy / "run" / "log").read_text()
    assert (
        "columns: 1 lemma (letters) + 3 features (whole tokens separated by ;) -> 2 form (letters); "
        "to say otherwise: --columns 1:letters+3:tokens,2:letters\n"
    ) in log
    assert Run(toy / "run").read_recipe()["data"]["columns"] == ["1:letters+3:tokens", "2:letters"]


@pytest.mark.slow
def test_the_form_depends_on_the_features(toy, monkeypatch, capsys):
    rows = make_rows(60, 1)
    lines = "".join(f"{lemma}\t{features}\n" for lemma, _, features in rows)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    out, err = output(capsys, "predict", toy / "run")
    assert err == ""  # a tab is no mistake here
    forms = out.splitlines()
    assert sum(form == expected for form, (_, expected, _) in zip(forms, rows, strict=True)) >= 57
    scores = json.loads(output(capsys, "evaluate", toy / "run", toy / "test.tsv", "--json")[0])["text"]
    assert scores["exact_match"]["value"] == pytest.approx(
        sum(form == expected for form, (_, expected, _) in zip(forms, rows, strict=True)) / 60
    )
    assert scores["whole_word_error_rate"]["value"] == pytest.approx(1 - scores["exact_match"]["value"])
    assert scores["by_length"]["unit"] == "character"  # of the lemma


@pytest.mark.slow
def test_a_format_by_name_has_its_own_columns(toy, tmp_path, capsys):
    rows = make_rows(20, 1)
    pairs = write(tmp_path / "pairs.tsv", rows)
    other_order = write(tmp_path / "other", [(lemma, features, form) for lemma, form, features in rows])
    for command, more in (("evaluate", ["--json"]), ("align", ["--text"])):
        expected = output(capsys, command, toy / "run", "--data", pairs, *more)[0]
        found = output(capsys, command, toy / "run", "--data", other_order, "--format", "sigmorphon2023", *more)[0]
        assert found == expected


@pytest.mark.slow
def test_a_file_in_another_order_is_refused(toy, tmp_path, capsys):
    rows = [(lemma, features, form) for lemma, form, features in make_rows(60, 1)]
    other = write(tmp_path / "other.tsv", rows)
    for command in ("evaluate", "align"):
        assert main([command, str(toy / "run"), other]) == 2
        assert capsys.readouterr().err == (
            f"regard: {other}: column 2 looks like features, but the training data is lemma, form, features; "
            "select the columns with --columns 1:letters+2:tokens,3:letters\n"
        )
        assert main([command, str(toy / "run"), other, "--columns", "1+2,3", "--quiet"]) == 0
        capsys.readouterr()


@pytest.mark.slow
def test_features_are_shown_as_words(toy, capsys):
    model = load(toy / "run")
    picture = model.look("bal V;NEG;PL")  # spaces do if there are as many words as columns
    assert picture.columns == ("b", "a", "l", "V", "NEG", "PL", "<eos>")
    assert model.look("bal\tV;NEG;PL").columns == picture.columns
    plural = picture.rows.index("s")
    assert picture.select()[plural].argmax() >= 3  # at a feature or the end, not at a letter
    (toy / "one.tsv").write_text("bal\tbals\tV;PL\n")
    out, err = output(capsys, "align", toy / "run", toy / "one.tsv", "--text")
    assert err == "links connect source characters and target characters (--unit)\n"
    assert out.split()[0].endswith("-b") or out.split()[0].startswith("b-")
    assert output(capsys, "inspect", toy / "run")[0].count("source tokens (characters + words)") == 1


@pytest.mark.slow
def test_unknown_features_are_named(toy, capsys):
    out, err = output(capsys, "predict", toy / "run", "bal\tV;DU")
    assert out.startswith("b")
    assert 'unknown to the model, with their counts: "DU" (1)\n' in err


@pytest.mark.slow
def test_a_line_without_its_columns_is_refused(toy, capsys):
    assert main(["predict", str(toy / "run"), "bal"]) == 2
    message = 'expected 2 columns separated by tabs, lemma and features, got 1: "bal"'
    assert capsys.readouterr().err == f"regard: {message}\n"
    (toy / "lines.txt").write_text("bal\tV;PL\n\nbal\n")
    assert main(["predict", str(toy / "run"), "--source", str(toy / "lines.txt")]) == 2
    assert capsys.readouterr().err == f"regard: {toy / 'lines.txt'}, line 3: {message}\n"
    served = start_model("toy", load(toy / "run"), ServeSettings())
    with running({"toy": served}) as client:
        refused = client.ask("/api/predict", {"text": "bal"})
        assert (refused.status, refused.json["error"]) == (422, message)
        answer = client.ask("/api/predict", {"text": "bal\tV;PL"}).json
        assert answer["source_tokens"] == ["b", "a", "l", "V", "PL", "<eos>"]
        assert client.ask("/api/look", {"text": "bal V;PL"}).json["columns"] == answer["source_tokens"]
    served.worker.stop(5)


@pytest.mark.slow
def test_training_goes_on_with_the_same_columns(toy, capsys):
    arguments = ["train", toy / "train.tsv", "--out", toy / "run", *SETTINGS]
    arguments[arguments.index("--steps") + 1] = "221"
    assert main(list(map(str, arguments))) == 0
    assert "resuming at step 220 of 221" in capsys.readouterr().err


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.tsv", make_rows(40, 0))
    return tmp_path


def test_the_target_may_have_columns_too(here):
    assert main(["train", "a.tsv", "--columns", "2,1+3", "--out", "run", "--quiet", *TINY]) == 0
    log = Path("run/log").read_text()
    assert "columns: column 2 (letters) -> column 1 (letters) + column 3 (whole tokens separated by ;)\n" in log
    model = load("run")
    prediction = model.force(["bals"], ["bal\tV;PL"])[0]
    assert prediction.target_tokens == ("b", "a", "l", "V", "PL", "<eos>")
    assert prediction.raw_text == "bal\tV PL"
    assert model.predict("bals", beam=1).text.count("\t") == 1


@pytest.mark.parametrize(
    ("settings", "setting"), [({"text": {"shared_vocab": True}}, "text.shared_vocab"), ({}, "model.tied")]
)
def test_columns_share_no_vocabulary(here, settings, setting):
    model = {"name": "simple-attention", "tied": setting == "model.tied", "hidden": 4, "embedding": 4}
    with pytest.raises(RegardError) as caught:
        train({"data": {"train": "a.tsv"}, "model": model, **settings}, "run", quiet=True)
    assert str(caught.value) == f"{setting} requires one vocabulary for both sides, but every column has its own"


def test_three_columns_without_features_are_refused(here):
    write(here / "b.tsv", [("ein hund schläft heute", "a dog sleeps today", "1.0")] * 9)
    with pytest.raises(RegardError) as caught:
        train({"data": {"train": "b.tsv"}}, "run", quiet=True)
    assert str(caught.value) == (
        "b.tsv, line 1: expected 2 columns, got 3 columns (2 tabs); choose source and target by number or name: "
        "--data.columns 1,2, or join columns on one side: --data.columns 1+3,2"
    )


def test_a_comparison_needs_as_many_columns(toy, reverse_run, capsys):
    run, table = toy / "run", toy / "test.tsv"
    assert main(["evaluate", str(run), str(table), "--against", str(reverse_run)]) == 2
    line = f"expected 2 source columns and 1 target column, as {run} has, got 1 and 1"
    assert capsys.readouterr() == ("", f"regard: --against {reverse_run}: {line}\n")


def test_the_run_of_the_other_direction_is_named(toy, capsys):
    run, table = toy / "run", toy / "test.tsv"
    assert main(["align", str(run), str(table), "--backward", str(run), "--quiet"]) == 2
    line = "expected 1 source column and 2 target columns, the reverse of the run to align with, got 2 and 1"
    assert capsys.readouterr() == ("", f"regard: --backward {run}: {line}\n")


def test_a_training_from_another_run_reads_as_many_columns(tmp_path, toy, capsys):
    pairs = write(tmp_path / "pairs.tsv", [(lemma, form) for lemma, form, _ in make_rows(30, 2)])
    plain = str(tmp_path / "plain")
    assert main(["train", pairs, "--out", plain, "--quiet", *TINY]) == 0
    table, steps = write(tmp_path / "table.tsv", make_rows(30, 3)), ["--steps", "1", "--quiet"]
    for data, base, message in (
        (table, plain, f"{plain} has 1 source column and 1 target column, got 2 and 1"),
        (pairs, str(toy / "run"), f"{toy / 'run'} has 2 source columns and 1 target column, got 1 and 1"),
    ):
        capsys.readouterr()
        assert main(["train", data, "--out", str(tmp_path / "new"), "--from", base, *steps]) == 2
        assert capsys.readouterr().err == f"regard: data: {message}; select them with --columns\n"
    selected = ["--columns", "1,2", *steps]
    assert main(["train", table, "--out", str(tmp_path / "new"), "--from", plain, *selected]) == 0
