"""What is typed behind `regard train`, and what is wrong with it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import aliases
from regard.cli.train_options import find_known_fields, override
from regard.data.corpora import CORPORA
from regard.errors import RegardError
from regard.models import MODELS
from regard.settings import Field, get_fields
from regard.tasks import to_recipe
from tests.test_recipe import NAMES, error_of

MODEL_NAMES = ", ".join(sorted(MODELS))


def test_a_model_of_ours_is_no_alias():
    assert aliases.MODELS.keys().isdisjoint(MODELS)


@pytest.mark.parametrize(
    ("options", "table"),
    [
        ([("model", "bahdanau"), ("hidden", "64")], {"model": {"name": "bahdanau", "hidden": 64}}),
        ([("hidden", "64"), ("model", "luong-dot")], {"model": {"name": "luong-dot", "hidden": 64}}),
        ([("model.name", "seq2seq"), ("model.dropout", "0.3")], {"model": {"name": "seq2seq", "dropout": 0.3}}),
        (
            [("validation-source", "a"), ("data.validation_target", "b")],
            {"data": {"validation_source": "a", "validation_target": "b"}},
        ),
        ([("columns", "de,en")], {"data": {"columns": ("de", "en")}}),
        ([("steps", "10"), ("steps", "20")], {"training": {"steps": 20}}),
        ([("compile", None), ("lowercase", "no")], {"training": {"compile": True}, "text": {"lowercase": False}}),
        ([("heads", "2"), ("score", "dot")], {"model": {"heads": 2, "score": "dot"}}),
        ([("cell", "lstm"), ("layers", "2")], {"model": {"cell": "lstm", "layers": 2}}),
        ([("shared-vocab", "auto")], {"text": {"shared_vocab": "auto"}}),
        ([("shared-vocab", None)], {"text": {"shared_vocab": True}}),
        ([("tied", "all")], {"model": {"tied": "all"}}),
        ([("tied-embeddings", None)], {"model": {"tied_embeddings": True}}),
        ([("seed", "3"), ("beam", "7")], {"training": {"seed": 3}, "decoding": {"beam": 7}}),
        (
            [("data.corpus.max-length", "5"), ("train", "copy"), ("data.corpus.alphabet", "123")],
            {"data": {"train": "copy", "corpus": {"max_length": 5, "alphabet": "123"}}},
        ),
    ],
)
def test_what_is_typed_finds_its_place_and_type(options, table):
    assert override({}, options) == table
    to_recipe(table, "x")


def test_what_is_typed_replaces_what_a_recipe_says_and_nothing_else():
    before = {"model": {"name": "bahdanau", "hidden": 8}, "data": {"train": "copy", "corpus": {"max_length": 4}}}
    result = override(before, [("hidden", "9"), ("data.corpus.min-length", "2")])
    assert result["model"] == {"name": "bahdanau", "hidden": 9}
    assert result["data"] == {"train": "copy", "corpus": {"max_length": 4, "min_length": 2}}
    assert before["data"]["corpus"] == {"max_length": 4}


@pytest.mark.parametrize(
    ("option", "text", "line"),
    [
        ("hiden", "3", "train: unknown option --hiden; did you mean --hidden?"),
        ("xyzzy", "3", "train: unknown option --xyzzy; see regard train --help-all"),
        ("foo.bar", "3", "train: unknown option --foo.bar; see regard train --help-all"),
        ("", "3", "train: unknown option --; see regard train --help-all"),
        ("model.hiden", "3", '--model.hiden: unknown setting "hiden"; did you mean "hidden"?'),
        ("model", "bahdanu", '--model: unknown value "bahdanu"; did you mean "bahdanau"?'),
        ("model", "", f'--model: unknown value ""; choose from {MODEL_NAMES}'),
        ("model", None, "--model requires a value"),
        ("hidden", None, "--hidden requires a value"),
        ("hidden", "x", '--hidden: expected an integer, got "x"'),
        ("hidden", "2.5", "--hidden: expected an integer, got 2.5"),
        ("learning-rate", "fast", '--learning-rate: expected a number, got "fast"'),
        ("compile", "perhaps", '--compile: expected true or false, got "perhaps"'),
        ("cell", "grU", '--cell: unknown value "grU"; did you mean "gru"?'),
        ("corpus", "3", '--corpus: expected a table, got "3"'),
        (
            "data.corpus.max-length",
            "3",
            "--data.corpus.max-length requires a built-in corpus (acts, agreement, copy, coreference, dates, entities, "
            "numbers, reverse, sort, terms, toy-en-de), got none",
        ),
    ],
)
def test_what_is_typed_wrong_is_said_with_its_option(option, text, line):
    with pytest.raises(RegardError) as caught:
        override({}, [(option, text)])
    assert str(caught.value) == line


def test_an_option_of_another_model_is_refused():
    assert error_of(override, {}, [("width", "8"), ("model", "bahdanau")]) == (
        "--width: bahdanau has no such setting; it has embedding, hidden, layers, cell, bidirectional, reverse-source, "
        "dropout, attention, score, score-rank, score-hidden, score-activation, score-power, heads, project, "
        "normalizer, learn-width, composition, input-feeding, copy, tied, tied-embeddings"
    )


@pytest.mark.parametrize(
    ("options", "table"),
    [
        ([("lr", "1")], {"training": {"learning_rate": 1.0}}),
        ([("training.lr", "1")], {"training": {"learning_rate": 1.0}}),
        ([("max_steps", "1")], {"training": {"steps": 1}}),
        ([("num-layers", "2")], {"model": {"layers": 2}}),
        ([("d-model", "8"), ("model", "bahdanau")], {"model": {"name": "bahdanau", "hidden": 8}}),
        ([("layers", "2"), ("model", "transformer")],
         {"model": {"name": "transformer", "encoder_layers": 2, "decoder_layers": 2}}),
        ([("block-size", "9"), ("model", "gpt")], {"model": {"name": "gpt", "context_length": 9}}),
        ([("task", "ner")], {"data": {"task": "tag"}}),
    ],
)  # fmt: skip
def test_what_other_programs_call_an_option(options, table):
    assert override({}, options) == table


def test_what_is_typed_of_steps_and_epochs_replaces_the_other_of_a_recipe():
    assert override({"training": {"steps": 5}}, [("epochs", "2")]) == {"training": {"epochs": 2.0}}
    assert override({"training": {"epochs": 2}}, [("steps", "5")]) == {"training": {"steps": 5}}


def test_every_synonym_leads_somewhere():
    sections = ("data", "text", "model", "training", "decoding")
    known = {name.replace("_", "-") for section in sections for name in find_known_fields(section, {})}
    for candidates in aliases.SETTINGS.values():
        assert {part.replace("_", "-") for candidate in candidates for part in candidate.split("+")} <= known
    for name, hint in aliases.HINTS.items():
        assert name.replace("_", "-") not in known
        assert set(re.findall(r"--([a-z-]+)", hint)) <= known | {"out", "from", "device", "model", "quiet"}


ONE_MODEL_OF_EACH_CLASS = {preset.config: {"model": {"name": name}} for name, preset in MODELS.items()}.values()
COPY = [{"data": {"train": "copy"}, "model": {"name": name}} for name in ("bahdanau", "transformer")]


@pytest.mark.slow
@pytest.mark.parametrize("table", [*ONE_MODEL_OF_EACH_CLASS, *COPY], ids=str)
def test_every_synonym_is_taken_or_answered_in_one_line_whatever_is_trained(table):
    corpus_fields = get_fields(CORPORA["copy"]) if "data" in table else {}
    for name, candidates in aliases.SETTINGS.items():
        meant = {part for candidate in candidates for part in candidate.split("+")} | {name}
        option = name.replace("_", "-")
        error, changed = None, table
        try:
            changed = override(table, [(option, "0.5")])
        except RegardError as caught:
            error = str(caught)
        new_names = {key for section, values in changed.items() for key in values if key not in table.get(section, {})}
        assert new_names <= meant or name in corpus_fields
        assert error != f"train: unknown option --{option}; see regard train --help-all"
        assert changed != table or (error is not None and "\n" not in error)


def test_the_positions_of_a_model_are_not_the_length_of_a_corpus():
    """The built-in corpus has a setting max_length, too."""
    copy = {"data": {"train": "copy"}}
    assert override(copy, [("n-positions", "9"), ("model", "transformer")])["model"] == {
        "name": "transformer",
        "max_length": 9,
    }
    assert error_of(override, copy, [("n-positions", "9"), ("model", "bahdanau")]) == (
        "--n-positions is --context-length here, which bahdanau does not have"
    )
    assert error_of(override, {}, [("bptt", "9"), ("task", "label")]) == (
        "--bptt is --segment-length here, which the task label does not have"
    )


@pytest.mark.parametrize(
    ("option", "text", "line"),
    [
        ("early-stopping", "true", "--early-stopping is --patience here (stop after this many validations without "
         'improvement; 0 never stops): expected an integer, got "true"'),
        ("early-stopping", None, "--early-stopping is --patience here (stop after this many validations without "
         "improvement; 0 never stops): a value is required"),
        ("fp16", "true", "train: unknown option --fp16; use --precision bfloat16"),
        ("do-eval", "true", "train: unknown option --do-eval; use regard evaluate RUN FILE after training"),
        ("arch", "lstm", "train: unknown option --arch; use --model NAME"),
        ("model", "lstm", '--model: unknown value "lstm"; use bahdanau or luong-dot with cell lstm for pairs, '
         "or lstm-lm for plain text"),
        ("model", "attentive_lstm",
         '--model: unknown value "attentive_lstm"; use bahdanau or luong-dot with cell lstm'),
    ],
)  # fmt: skip
def test_what_other_programs_have_is_answered_with_what_to_use(option, text, line):
    assert error_of(override, {}, [(option, text)]) == line


def test_every_advice_for_a_model_names_models_and_settings():
    for advice in aliases.MODELS.values():
        named = set(re.findall(r"[a-z]+(?:-[a-z]+)*", advice.partition(" with ")[0].partition(" for ")[0]))
        assert named & MODELS.keys()


def test_settings_of_reading_have_whole_names_alone():
    result = override(
        {}, [("steps", "5"), ("pretraining.steps", "7"), ("pretraining.dropout", "0"), ("dropout", "0.1")]
    )
    assert result == {"training": {"steps": 5}, "pretraining": {"steps": 7, "dropout": 0.0}, "model": {"dropout": 0.1}}
    assert error_of(override, {}, [("labeled-repeats", "2")]) == (
        "train: unknown option --labeled-repeats; did you mean --pretraining.labeled-repeats?"
    )
    assert error_of(override, {}, [("pretraining.stepps", "2")]).endswith('did you mean "steps"?')


def test_settings_of_a_built_in_corpus_have_short_names_where_no_other_has_them():
    result = override({}, [("alphabet", "abc"), ("train", "copy")])
    assert result == {"data": {"train": "copy", "corpus": {"alphabet": "abc"}}}
    recurrent = {"data": {"train": "copy"}, "model": {"name": "bahdanau"}}
    assert override(recurrent, [("max-length", "5")])["data"]["corpus"] == {"max_length": 5}
    assert error_of(override, {"data": {"train": "copy"}}, [("max-length", "5")]) == (
        "--max-length is ambiguous; use --model.max-length or --data.corpus.max-length"
    )
    assert error_of(override, {"data": {"train": "a.tsv"}}, [("alphabet", "abc")]) == (
        "train: unknown option --alphabet; see regard train --help-all"
    )


def test_a_setting_that_two_sections_have_needs_its_whole_name(monkeypatch):
    monkeypatch.setattr("regard.cli.train_options.get_all_model_fields", lambda: {"seed": Field("seed", int, 0, "")})
    with pytest.raises(RegardError, match=r"^--seed is ambiguous; use --model\.seed or --training\.seed$"):
        override({}, [("seed", "3")])


@pytest.mark.slow
@given(st.lists(st.tuples(NAMES | st.text(max_size=3), st.text(max_size=4) | st.none()), max_size=3))
def test_whatever_is_typed_is_a_table_or_one_line(options):
    line = error_of(override, {"data": {"train": "copy"}}, options)
    assert line is None or "--" in line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([("documents", "line"), ("model", "bahdanau")], "--documents is for the task text; this recipe is for pairs"),
        ([("data.documents", "line"), ("task", "tag")],
         "--data.documents is for the task text; this recipe is for tag"),
        ([("model", "gpt"), ("beam", "3")], "--beam is for the task pairs; this recipe is for text"),
        ([("task", "text"), ("pretraining.steps", "3")],
         "--pretraining.steps is for the tasks tag and label; this recipe is for text"),
        ([("task", "taag")], '--task: unknown value "taag"; did you mean "tag"?'),
    ],
)  # fmt: skip
def test_an_option_of_another_task_is_refused(options, line):
    assert error_of(override, {}, options) == line
