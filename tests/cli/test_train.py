import io
import json
import re
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.cli import main
from regard.cli.train_help import DATA_DEPENDENT
from regard.cli.train_options import find_known_fields
from regard.data.corpora import CORPORA
from regard.models import MODELS
from regard.recipe import get_model_fields
from regard.run import Run
from regard.settings import get_fields, to_toml
from regard.tasks.pairs.defaults import PairFacts, choose_pair_model_sizes
from regard.tasks.tag.settings import TagData

TINY = ["--steps", "2", "--batch-tokens", "60", "--validate-every", "2", "--hidden", "6", "--embedding", "6"]
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
    assert said[0] == "data: pairs.tsv, 1 pair split off for validation"
    assert re.fullmatch(r"trained 2 steps in \d+ s; run saved in runs/mine", said[-2])
    assert said[-1] == "next: regard predict runs/mine < in.txt > out.txt"
    recipe = Run(here / "runs/mine").read_recipe()
    assert (recipe["model"]["hidden"], recipe["training"]["steps"]) == (6, 2)
    assert recipe["data"]["train"] == str(here / "pairs.tsv")
    assert talk(capsys, "pairs.tsv", "--out", "runs/mine", "--quiet", *TINY) == []


def test_one_step_is_not_called_steps(here, capsys):
    said = talk(capsys, "pairs.tsv", "--out", "run", *TINY, "--steps", "1", "--validate-every", "1")
    assert any(line.startswith("training: 1 step of up to 60 tokens per side") for line in said)
    assert re.fullmatch(r"trained 1 step in \d+ s; run saved in run", said[-2])


def test_two_files_and_two_to_validate_with(here, capsys):
    files = ["--source", "a.en", "--target", "a.de", "--validation-source", "a.de", "--validation-target", "a.en"]
    said = talk(capsys, *files, "--out", "run", *TINY)
    assert said[0] == "data: a.en and a.de"
    assert Run(here / "run").read_card()["data"]["validation"] == len(LETTERS)


def test_pairs_come_from_stdin_and_one_file_validates(here, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((here / "pairs.tsv").read_bytes())))
    (here / "valid.tsv").write_text("a c b\tb c a\n")
    assert talk(capsys, "-", "--validation", "valid.tsv", "--out=run", *TINY)[0] == "data: -"


def test_a_recipe_is_changed_by_what_is_typed(here, capsys):
    data = {"train": "pairs.tsv", "validation": "pairs.tsv"}
    recipe = {"data": data, "model": {"name": "luong-dot", "cell": "rnn"}, "training": {"seed": 3}}
    (here / "recipes").mkdir()
    (here / "recipes/mine.toml").write_text(to_toml(recipe))
    (here / "recipes/pairs.tsv").write_text("a b\tb a\nb c\tc b\n" * 3 + "a\ta\n")
    options = [
        "--model.dropout",
        "0.3",
        "--cell",
        "lstm",
        "--layers=2",
        "--data.validation",
        "none",
        "--validation-share",
        "0.4",
    ]
    talk(capsys, "recipes/mine.toml", *options, "--out", "run", *TINY)
    result = Run(here / "run").read_recipe()
    sizes = {"layers": 2, "hidden": 6, "embedding": 6}
    assert result["model"] == {"name": "luong-dot", "cell": "lstm", "dropout": 0.3, "copy": False} | sizes
    assert (result["training"]["seed"], result["data"]["train"]) == (3, str(here / "recipes/pairs.tsv"))
    assert Run(here / "run").read_card()["data"]["validation"] == 3


def test_a_built_in_corpus_with_flags_wherever_they_stand(here, capsys):
    corpus = ["--data.corpus.alphabet", "abc", "--data.corpus.max-length", "3", "--corpus-size", "20"]
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
    assert recipe["data"]["corpus"] == {"alphabet": "abc", "max_length": 3}
    assert (recipe["model"]["bidirectional"], recipe["model"]["input_feeding"]) == (True, False)


def test_settings_of_a_built_in_corpus_by_their_short_names(here, capsys):
    talk(capsys, "--questions", "toy-en-de", "--clauses", "1", "--corpus-size", "20", "--out", "run", *TINY)
    assert Run(here / "run").read_recipe()["data"]["corpus"] == {"questions": True, "clauses": 1}


def test_a_run_is_tuned_from_another(here, reverse_run, capsys):
    said = talk(capsys, "pairs.tsv", "--from", str(reverse_run), "--out", "tuned", *TINY[:6])
    assert f"tokens: loaded from {reverse_run}" in said
    assert Run(here / "tuned").read_card()["from"] == str(reverse_run)


def test_other_tools_names_of_options_are_taken(here, capsys):
    (here / "dev.tsv").write_text("a c b\tb c a\n")
    names = ["--max-steps", "2", "--lr", "0.02", "--num-layers", "2", "--hidden-size", "6", "--clip-norm", "2"]
    talk(capsys, "pairs.tsv", "-o", "run", "--model", "transformer", "--heads", "2", "--dev", "dev.tsv", *names)
    recipe = Run(here / "run").read_recipe()
    model, training = recipe["model"], recipe["training"]
    assert (model["encoder_layers"], model["decoder_layers"], model["width"]) == (2, 2, 6)
    assert (training["steps"], training["learning_rate"], training["max_grad_norm"]) == (2, 0.02, 2)
    assert recipe["data"]["validation"] == str(here / "dev.tsv")


def test_epochs_become_steps_and_can_be_raised(here, capsys):
    sizes = ["--batch-tokens", "20", "--hidden", "6", "--embedding", "6", "--out", "run"]
    said = talk(capsys, "pairs.tsv", "--epochs", "2", *sizes)
    (batches,) = {int(number) for line in said for number in re.findall(r"(\d+) (?:an|per) epoch", line)}
    assert batches > 1
    assert Run(here / "run").read_metrics()[-1]["step"] == 2 * batches
    assert Run(here / "run").read_recipe()["training"]["steps"] == 2 * batches
    talk(capsys, "pairs.tsv", "--epochs", "3", *sizes)
    assert Run(here / "run").read_metrics()[-1]["step"] == 3 * batches


RUN_LESS = [
    (["pairs.tsv"], "train: --out is required: the folder for the run"),
    (["pairs.tsv", "--out"], "--out requires a value"),
    (["pairs.tsv", "--out="], "--out requires a value"),
    (["pairs.tsv", "--out", "--quiet"], "--out requires a value"),
    (["pairs.tsv", "copy", "--out", "run"],
     "train: expected one file, folder, corpus or recipe, got pairs.tsv, copy"),
    (["pairs.tsv", "--bidirectional", "maybe", "--out", "run"],
     "train: expected one file, folder, corpus or recipe, got pairs.tsv, maybe "
     "(--bidirectional takes no value but true or false)"),
    ([], "train: DATA and --out are required, as in: regard train pairs.tsv --out runs/mine"),
    (["pairs.tsv", "-x", "--out", "run"], "train: unknown option -x; see regard train --help-all"),
    (["run.d"], "run.d is a run; to resume it, use regard train --out run.d"),
    (["pairs.tsv", "-hidden=3", "--out", "run"], "train: unknown option -hidden; did you mean --hidden?"),
    (["pairs.tsv", "--batch-size", "3", "--out", "run"],
     "train: unknown option --batch-size; batches are sized in tokens: use --batch-tokens N"),
    (["pairs.tsv", "--resume", "--out", "run"],
     "train: unknown option --resume; run the same command again to resume from the last checkpoint"),
    (["pairs.tsv", "--epochs", "3", "--steps", "3", "--out", "run"], "--epochs cannot be combined with --steps"),
    (["pairs.tsv", "--epochs", "0", "--out", "run"], "command line: [training] epochs must be above 0, got 0.0"),
    (["pairs.tsv", "--hiden", "3", "--out", "run"], "train: unknown option --hiden; did you mean --hidden?"),
    (["pairs.tsv", "--quiet=no", "--out", "run"], "--quiet takes no value"),
    (["pairs.tsv", "--steps", "--out", "run"], "--steps requires a value"),
    (["pairs.tsv", "--steps", "many", "--out", "run"], '--steps: expected an integer, got "many"'),
    (["pairs.tsv", "--steps", "0", "--out", "run"], "command line: [training] steps must be at least 1, got 0"),
    (["pairs.tsv", "--model", "bahdanu", "--out", "run"], '--model: unknown value "bahdanu"; did you mean "bahdanau"?'),
    (["pairs.tsv", "--score", "dott", "--out", "run"],
     'command line: [model] unknown score "dott"; did you mean "dot"?'),
    (["date", "--out", "run"], 'unknown file or built-in corpus "date"; did you mean "dates"?'),
    (["none.tsv", "--out", "run"], "cannot read none.tsv: not found"),
    (["none.toml", "--out", "run"], "cannot read none.toml: not found"),
    (["bad.toml", "--steps", "2", "--out", "run"],
     'bad.toml: unknown setting "step" in [training]; did you mean "steps"?'),
    (["good.toml", "--steps", "0", "--out", "run"],
     "good.toml and command line: [training] steps must be at least 1, got 0"),
    (["folder", "--out", "run"], "folder: no text"),
    (["folder", "--out", "run", "--model", "bahdanau"],
     "folder is a folder; expected a file of pairs or a built-in corpus"),
    (["--source", "a.en", "--out", "run"], "data: --source requires --target"),
    (["pairs.tsv", "--from", "none", "--out", "run"],
     "none: not found; expected a run folder created by regard train"),
    (["pairs.tsv", "--device", "mps", "--out", "run"],
     '--device: unknown "mps"; choose from auto, cpu, cuda, cuda:1'),
    (["pairs.tsv", "--out", "a.en"], "a.en: expected a folder for the run, got a file"),
    (["pairs.tsv", "--out", "folder"], "folder is not empty and not a run; choose another folder"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "line"), RUN_LESS)
def test_what_a_user_can_put_right_is_one_line(arguments, line, here, capsys):
    (here / "folder").mkdir()
    (here / "folder/file").touch()
    (here / "run.d").mkdir()
    (here / "run.d/run.json").write_text("{}")
    (here / "bad.toml").write_text("[training]\nstep = 3\n")
    (here / "good.toml").write_text('[data]\ntrain = "pairs.tsv"\n')
    assert main(["train", *arguments]) == 2
    assert capsys.readouterr() == ("", f"regard: {line}\n")


def helped(capsys, *arguments: str) -> str:
    assert main(["train", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--help", "--model"]])
def test_help_fits_on_a_screen_and_its_options_exist(arguments, capsys):
    out = helped(capsys, *arguments)
    assert max(map(len, out.splitlines())) <= 98
    assert len(out.splitlines()) <= 40
    sections = ("data", "training", "model")
    known = {name.replace("_", "-") for section in sections for name in find_known_fields(section, {})}
    options = set(re.findall(r"--([a-z-]+)", out)) - {
        "out",
        "from",
        "device",
        "threads",
        "quiet",
        "help",
        "help-all",
        "model",
        "lr",
        "seeds",
        "jobs",
    }
    assert len(options) >= 10
    assert options <= known
    assert all(name in out for name in (*MODELS, *CORPORA))


def test_help_has_every_setting_and_is_easy_to_read(capsys):
    out = helped(capsys, "--help-all")
    assert max(map(len, out.splitlines())) <= 98
    for section in ("data", "text", "model", "pretraining", "training", "decoding"):
        for name in find_known_fields(section, {}):
            assert f"  --{section}.{name.replace('_', '-')}" in out
    assert all(name in out for name in MODELS)
    assert out.splitlines()[-1] == "Example: regard train dates --model bahdanau --out runs/dates"


@pytest.mark.parametrize("arguments", [["--model", "bahdanau", "--help"], ["--help", "--model=bahdanau"]])
def test_help_for_one_preset_has_its_settings_and_defaults(arguments, capsys):
    out = helped(capsys, *arguments)
    assert f"model: bahdanau, {MODELS['bahdanau'].source}" in " ".join(out.split())
    settings_ = re.findall(r"--model\.([a-z-]+)", out)
    assert settings_ == [name.replace("_", "-") for name in get_model_fields("bahdanau")]
    assert re.search(r"--model.bidirectional +[^\[\n]+\[true\]", out)
    assert re.search(r"--model.hidden N +[^\[\n]+\n", out)  # its default depends on the data


@pytest.mark.parametrize("arguments", [["--task", "tag"], ["--model", "attentive-tagger"]])
def test_help_for_one_task_has_its_settings_alone(arguments, capsys):
    out = helped(capsys, *arguments, "--help")
    sections = re.findall(r"\n\n([a-z.]+): ", out)
    assert sections == ["data", "text", "model", "pretraining", "training"]
    settings_ = re.findall(r"--data\.([a-z-]+)", out)
    assert sorted(settings_) == sorted(name.replace("_", "-") for name in get_fields(TagData))
    assert out.splitlines()[-1] == "Example: regard train ner.bio --task tag --out runs/ner"


@pytest.mark.parametrize(
    ("corpus", "example"), [("reverse", "dates"), ("agreement", "book.txt"), ("acts", "questions.tsv")]
)
def test_help_for_one_corpus_has_its_settings_and_those_of_its_task(corpus, example, capsys):
    out = helped(capsys, corpus, "--help")
    assert re.findall(r"--data\.corpus\.([a-z-]+)", out) == [
        name.replace("_", "-") for name in get_fields(CORPORA[corpus])
    ]
    table = {"data": {"train": corpus}}
    assert ("--data.documents" in out, "--data.separator" in out) == (corpus == "agreement", corpus == "acts")
    assert all(f"--training.{name.replace('_', '-')}" in out for name in find_known_fields("training", table))
    assert out.splitlines()[-1].startswith(f"Example: regard train {example} ")


def test_help_lists_the_corpora_of_each_task(capsys):
    out = " ".join(helped(capsys, "--help").split())
    assert (
        "corpus built-in: copy, dates, numbers, reverse, sort, toy-en-de (pairs); acts, terms (label); "
        "agreement, coreference (text); entities (tag)"
    ) in out


def test_help_for_a_model_that_there_is_not(capsys):
    assert main(["train", "--model", "bahdanu", "--help"]) == 2
    line = 'regard: --model: unknown value "bahdanu"; did you mean "bahdanau"?\n'
    assert capsys.readouterr() == ("", line)


def test_help_leaves_out_defaults_that_are_chosen_to_suit_the_data():
    facts = PairFacts(1, 2, 2, 2.0, symbols=False, words=True, on_gpu=False)
    names = ("bahdanau", "transformer")
    assert {size for name in names for size in choose_pair_model_sizes(name, facts)} == set(DATA_DEPENDENT)


NAMES = [
    "--steps",
    "--model",
    "--score",
    "--train",
    "--validation",
    "--source",
    "--data.corpus.max-length",
    "--from",
    "--tied",
]
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


def test_a_short_option_is_no_value(here, capsys):
    assert main(["train", "pairs.tsv", "--epochs", "-o", "run"]) == 2
    assert capsys.readouterr().err == "regard: --epochs requires a value\n"
