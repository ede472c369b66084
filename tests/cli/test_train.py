import io
import json
import re
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.cli import main
from regard.cli.train_help import SUITED
from regard.cli.train_options import known_fields
from regard.data.corpora import CORPORA
from regard.models import MODELS
from regard.recipe import model_fields
from regard.run import Run
from regard.settings import fields_of, to_toml
from regard.tasks.pairs.defaults import Facts, model_defaults
from regard.tasks.tag.settings import TagData

TINY = ["--steps", "2", "--tokens", "60", "--validate-every", "2", "--hidden", "6", "--embedding", "6"]
LETTERS = ["a b c", "b a", "c b", "a a b", "c c", "b c a", "a c", "b b a", "c a b", "a b"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with pairs, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    turned = [" ".join(reversed(text.split())) for text in LETTERS]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(LETTERS, turned, strict=True)))
    (tmp_path / "a.en").write_text("".join(f"{text}\n" for text in LETTERS))
    (tmp_path / "a.de").write_text("".join(f"{text}\n" for text in turned))
    return tmp_path


def talk(capsys, *arguments: str) -> list[str]:
    """What the command says; it must end well and write nothing to stdout."""
    assert main(["train", *arguments]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_a_file_of_pairs_becomes_a_run(here, capsys):
    said = talk(capsys, "pairs.tsv", "--out", "runs/mine", "--device", "cpu", *TINY)
    assert said[0] == "data: pairs.tsv, of which 1 pair is held out to validate with"
    assert re.fullmatch(r"trained 2 steps in \d+ s; the run is runs/mine", said[-2])
    assert said[-1] == "go on: regard predict runs/mine < in.txt > out.txt"
    recipe = Run(here / "runs/mine").read_recipe()
    assert (recipe["data"]["train"], recipe["model"]["hidden"], recipe["training"]["steps"]) == ("pairs.tsv", 6, 2)
    assert talk(capsys, "pairs.tsv", "--out", "runs/mine", "--quiet", *TINY) == []


def test_two_files_and_two_to_validate_with(here, capsys):
    files = ["--source", "a.en", "--target", "a.de", "--valid-source", "a.de", "--valid-target", "a.en"]
    said = talk(capsys, *files, "--out", "run", *TINY)
    assert said[0] == "data: a.en and a.de"
    assert Run(here / "run").read_card()["data"]["valid"] == len(LETTERS)


def test_pairs_come_from_stdin_and_one_file_validates(here, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((here / "pairs.tsv").read_bytes())))
    (here / "valid.tsv").write_text("a c b\tb c a\n")
    assert talk(capsys, "-", "--valid", "valid.tsv", "--out=run", *TINY)[0] == "data: -"


def test_a_recipe_is_changed_by_what_is_typed(here, capsys):
    data = {"train": "pairs.tsv", "valid": "pairs.tsv"}
    recipe = {"data": data, "model": {"name": "luong-dot", "cell": "rnn"}, "training": {"seed": 3}}
    (here / "recipes").mkdir()
    (here / "recipes/mine.toml").write_text(to_toml(recipe))
    (here / "recipes/pairs.tsv").write_text("a b\tb a\nb c\tc b\n" * 3 + "a\ta\n")
    options = ["--model.dropout", "0.3", "--cell", "lstm", "--layers=2", "--data.valid", "none", "--held-out", "0.4"]
    talk(capsys, "recipes/mine.toml", *options, "--out", "run", *TINY)
    found = Run(here / "run").read_recipe()
    model = {"name": "luong-dot", "cell": "lstm", "dropout": 0.3, "layers": 2, "hidden": 6, "embedding": 6}
    assert found["model"] == model
    assert (found["training"]["seed"], found["data"]["train"]) == (3, "recipes/pairs.tsv")
    assert Run(here / "run").read_card()["data"]["valid"] == 3


def test_a_built_in_corpus_with_flags_wherever_they_stand(here, capsys):
    corpus = ["--data.corpus.alphabet", "abc", "--data.corpus.longest", "3", "--count", "20"]
    talk(
        capsys,
        *corpus,
        "--bidirectional",
        "copy",
        "--input-feeding",
        "no",
        "--model",
        "luong-dot",
        "--out",
        "run",
        *TINY,
    )
    recipe = Run(here / "run").read_recipe()
    assert recipe["data"]["corpus"] == {"alphabet": "abc", "longest": 3}
    assert (recipe["model"]["bidirectional"], recipe["model"]["input_feeding"]) == (True, False)


def test_settings_of_a_built_in_corpus_by_their_short_names(here, capsys):
    talk(capsys, "--questions", "toy-en-de", "--clauses", "1", "--count", "20", "--out", "run", *TINY)
    assert Run(here / "run").read_recipe()["data"]["corpus"] == {"questions": True, "clauses": 1}


def test_a_run_is_tuned_from_another(here, reverse_run, capsys):
    said = talk(capsys, "pairs.tsv", "--from", str(reverse_run), "--out", "tuned", *TINY[:6])
    assert f"tokens: taken from {reverse_run}" in said
    assert Run(here / "tuned").read_card()["from"] == str(reverse_run)


RUN_LESS = [
    (["pairs.tsv"], "train: --out is missing; give the folder where the run shall go"),
    (["pairs.tsv", "--out"], "--out: a value is missing"),
    (["pairs.tsv", "--out="], "--out: a value is missing"),
    (["pairs.tsv", "--out", "--quiet"], "--out: a value is missing"),
    (["pairs.tsv", "copy", "--out", "run"],
     "train: found pairs.tsv and copy; one file, folder, corpus or recipe is needed"),
    (["pairs.tsv", "--bidirectional", "maybe", "--out", "run"],
     "train: found pairs.tsv and maybe; one file, folder, corpus or recipe is needed "
     "(--bidirectional is true or false)"),
    ([], "train: nothing is given; regard train DATA --out FOLDER is enough, --help lists all"),
    (["pairs.tsv", "-x", "--out", "run"], "train: there is no option -x; regard train --help lists all"),
    (["pairs.tsv", "-o", "run"], "train: there is no option -o; here it is --out"),
    (["pairs.tsv", "-q", "--out", "run"], "train: there is no option -q; here it is --quiet"),
    (["pairs.tsv", "-hidden=3", "--out", "run"], "train: there is no option -hidden; did you mean --hidden?"),
    (["pairs.tsv", "--lr", "3", "--out", "run"], "train: there is no option --lr; here it is --rate"),
    (["pairs.tsv", "--hiden", "3", "--out", "run"], "train: there is no option --hiden; did you mean --hidden?"),
    (["pairs.tsv", "--quiet=no", "--out", "run"], "--quiet: takes no value"),
    (["pairs.tsv", "--steps", "--out", "run"], "--steps: a value is missing"),
    (["pairs.tsv", "--steps", "many", "--out", "run"], '--steps is "many"; a whole number is needed'),
    (["pairs.tsv", "--steps", "0", "--out", "run"], "command line: [training] steps is 0; 1 is the least"),
    (["pairs.tsv", "--model", "bahdanu", "--out", "run"], '--model: there is no "bahdanu"; did you mean "bahdanau"?'),
    (["pairs.tsv", "--score", "dott", "--out", "run"],
     'command line: [model] score: there is no "dott"; did you mean "dot"?'),
    (["date", "--out", "run"], 'file or built-in corpus: there is no "date"; did you mean "dates"?'),
    (["none.tsv", "--out", "run"], "none.tsv: there is no such file"),
    (["none.toml", "--out", "run"], "none.toml: No such file or directory; a TOML file is needed"),
    (["bad.toml", "--steps", "2", "--out", "run"],
     'bad.toml: [training] settings: there is no "step"; did you mean "steps"?'),
    (["good.toml", "--steps", "0", "--out", "run"],
     "good.toml and command line: [training] steps is 0; 1 is the least"),
    (["folder", "--out", "run"], "folder: there is no text in it; some is needed"),
    (["folder", "--out", "run", "--model", "bahdanau"],
     "folder: is a folder; a file of pairs or a built-in corpus is needed"),
    (["--source", "a.en", "--out", "run"], "data: --target is missing; two files, line by line, are needed"),
    (["pairs.tsv", "--from", "none", "--out", "run"],
     "none: there is no such folder; a run made by regard train is needed"),
    (["pairs.tsv", "--device", "mps", "--out", "run"],
     '--device: there is no "mps"; auto, cpu, cuda or cuda:1 would be right'),
    (["pairs.tsv", "--out", "a.en"], "a.en: is a file; a folder for the run is needed"),
    (["pairs.tsv", "--out", "folder"], "folder: holds other things than a run; choose another folder"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "line"), RUN_LESS)
def test_what_a_user_can_put_right_is_one_line(arguments, line, here, capsys):
    (here / "folder").mkdir()
    (here / "folder/file").touch()
    (here / "bad.toml").write_text("[training]\nstep = 3\n")
    (here / "good.toml").write_text('[data]\ntrain = "pairs.tsv"\n')
    assert main(["train", *arguments]) == 2
    assert capsys.readouterr() == ("", f"regard: {line}\n")


def helped(capsys, *arguments: str) -> str:
    assert main(["train", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["dates", "--help"], ["--help", "--model"]])
def test_help_has_every_setting_and_is_easy_to_read(arguments, capsys):
    out = helped(capsys, *arguments)
    assert max(map(len, out.splitlines())) <= 98
    for section in ("data", "text", "model", "reading", "training", "decoding"):
        for name in known_fields(section, {}):
            assert f"  --{section}.{name.replace('_', '-')}" in out
    assert all(name in out for name in (*MODELS, *CORPORA))
    assert out.splitlines()[-1] == "Example: regard train dates --model bahdanau --out runs/dates"


@pytest.mark.parametrize("arguments", [["--model", "bahdanau", "--help"], ["--help", "--model=bahdanau"]])
def test_help_for_one_preset_has_its_settings_and_defaults(arguments, capsys):
    out = helped(capsys, *arguments)
    assert re.findall(r"^model: (.*)$", out, re.MULTILINE) == ["bahdanau"]
    settings_ = re.findall(r"--model\.([a-z-]+)", out)
    assert settings_ == [name.replace("_", "-") for name in model_fields("bahdanau")]
    assert re.search(r"--model.bidirectional +read the source from both ends \[true\]", out)
    assert re.search(r"--model.hidden N +width of a state, in each direction\n", out)  # chosen to suit the data


@pytest.mark.parametrize("arguments", [["--task", "tag"], ["--model", "attentive-tagger"]])
def test_help_for_one_task_has_its_settings_alone(arguments, capsys):
    out = helped(capsys, *arguments, "--help")
    sections = re.findall(r"\n\n([a-z.]+): ", out)
    assert sections == ["data", "text", "model", "reading", "training"]
    assert re.findall(r"--data\.([a-z-]+)", out) == [name.replace("_", "-") for name in fields_of(TagData)]
    assert out.splitlines()[-1] == "Example: regard train ner.bio --task tag --out runs/ner"


def test_help_for_one_corpus_has_its_settings(capsys):
    out = helped(capsys, "reverse", "--help")
    assert re.findall(r"--data\.corpus\.([a-z-]+)", out) == list(fields_of(CORPORA["reverse"]))


def test_help_for_a_model_that_there_is_not(capsys):
    assert main(["train", "--model", "bahdanu", "--help"]) == 2
    line = 'regard: --model: there is no "bahdanu"; did you mean "bahdanau"?\n'
    assert capsys.readouterr() == ("", line)


def test_help_leaves_out_defaults_that_are_chosen_to_suit_the_data():
    facts = Facts(1, 2, 2, symbols=False, words=True, on_gpu=False)
    assert {*model_defaults(True, facts), *model_defaults(False, facts)} == set(SUITED)


NAMES = ["--steps", "--model", "--score", "--train", "--valid", "--source", "--data.corpus.longest", "--from", "--tied"]
VALUES = ["3", "0", "-1", "x", "", "-", "pairs.tsv", "copy", "bahdanau", "transformer", "dot", "none", "a.toml", "true"]
WORDS = st.sampled_from(
    [*NAMES, *VALUES, "--compile", "--quiet", "--model.heads", "--rate=x", "--betas", "--columns", "--"]
)


@pytest.mark.slow
@given(st.lists(WORDS, max_size=6))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_command_line_is_a_bug(here, capsys, words):
    (here / "a.toml").write_text(json.dumps("x") + " = 3\n")
    status = main(["train", *words, "--out", "a.en/run"])  # which cannot be, so that nothing is trained
    out, err = capsys.readouterr()
    assert (status, out, err[:8], err.count("\n")) == (2, "", "regard: ", 1)
