import dataclasses
import json

import pytest

from regard.compare.plan import Draft, Plan, Variant, match_parameters, read_plan, set_budget
from regard.errors import RegardError

DATA = {"data": {"train": "reverse", "corpus_size": 200, "corpus": {"max_length": 5}}}


def build_variant(model: str, training=None, **settings) -> Variant:
    table = {**DATA, "model": {"name": model, **settings}, "training": {"batch_tokens": 200, **(training or {})}}
    return Variant(model, table)


def build_plan(*variants: Variant, **settings) -> Plan:
    return Plan(variants=variants, **{"seeds": (0,), "test": None, **settings})


def test_trainings_go_seed_by_seed():
    plan = build_plan(build_variant("seq2seq"), build_variant("bahdanau"), seeds=(0, 1))
    assert [(variant.name, seed) for variant, seed in plan.trainings] == [
        ("seq2seq", 0),
        ("bahdanau", 0),
        ("seq2seq", 1),
        ("bahdanau", 1),
    ]


def test_a_name_becomes_a_file_name():
    assert Variant("bahdanau score=dot", {}).slug == "bahdanau-score-dot"


def test_a_model_is_compared_once():
    with pytest.raises(RegardError, match="compare: seq2seq is given twice"):
        build_plan(build_variant("seq2seq"), build_variant("seq2seq"))


def test_a_plan_is_saved_and_extended(tmp_path):
    plan = build_plan(build_variant("seq2seq"))
    plan.save(tmp_path)
    assert read_plan(tmp_path) == plan
    more = build_plan(build_variant("seq2seq"), build_variant("bahdanau"), seeds=(0, 1))
    more.save(tmp_path)
    assert read_plan(tmp_path) == more


def test_another_comparison_is_not_overwritten(tmp_path):
    build_plan(build_variant("seq2seq")).save(tmp_path)
    message = (
        f"{tmp_path} holds another comparison \\(seq2seq differs\\); choose another --out, or run the same command"
    )
    with pytest.raises(RegardError, match=message):
        build_plan(build_variant("seq2seq", hidden=8)).save(tmp_path)
    with pytest.raises(RegardError, match="the test data differs"):
        build_plan(build_variant("seq2seq"), test="other.tsv").save(tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RegardError, match="is not empty and not a comparison; choose another folder"):
        build_plan(build_variant("seq2seq")).save(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "expected a JSON object, got list"),
        ('{"format": 9}', "expected a plan of format 1"),
        ('{"format": 1, "variants": [{"nam": 1}], "seeds": [], "texts": []}', "is corrupt"),
        ('{"format": 1}', "is corrupt: plan: missing variants, seeds, test"),
        ('{"format": 1, "variants": [], "seeds": [0], "test": 0}', "is corrupt: plan.test: expected a string, got 0"),
    ],
)
def test_a_corrupt_plan_is_one_line(content, message, tmp_path):
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(RegardError, match=message):
        read_plan(tmp_path)


def test_all_models_get_the_updates_of_the_first():
    drafts = [
        Draft(build_variant("seq2seq", {"steps": 40}), "cpu"),
        Draft(build_variant("bahdanau", {"steps": 40, "patience": 3}), "cpu"),
    ]
    first, second = set_budget(drafts)
    assert first.table["training"]["steps"] == second.table["training"]["steps"] == 40
    assert first.table["training"]["validate_every"] == 4
    assert (first.table["training"]["patience"], second.table["training"]["patience"]) == (0, 3)


def test_epochs_become_the_updates_they_take():
    (variant,) = set_budget([Draft(build_variant("seq2seq", {"epochs": 2}), "cpu")])
    plan = Draft(variant, "cpu").prepared.batches.plan(0)
    assert variant.table["training"]["steps"] == 2 * len(plan)
    assert "epochs" not in variant.table["training"]


def test_a_budget_of_tokens_becomes_updates():
    draft = Draft(build_variant("seq2seq", {"steps": 10}, hidden=4, embedding=4), "cpu")
    seconds, tokens = draft.measure_update()
    (variant,) = set_budget([draft], tokens=5000)
    assert seconds > 0
    assert 0 < tokens <= 200  # a batch holds up to 200 tokens on either side
    assert variant.table["training"]["steps"] == pytest.approx(5000 / tokens, abs=1)


def test_a_budget_of_minutes_gives_a_faster_model_more_updates(monkeypatch):
    seconds = {"seq2seq": 0.1, "bahdanau": 0.25, "transformer": 900.0}
    monkeypatch.setattr(Draft, "measure_update", lambda draft: (seconds[draft.variant.name], 50.0))
    variants = set_budget([Draft(build_variant(name, {"steps": 10}), "cpu") for name in seconds], minutes=0.5)
    assert [variant.table["training"]["steps"] for variant in variants] == [300, 120, 1]


@pytest.mark.parametrize("model", ["transformer", "bahdanau"])
def test_widths_are_changed_to_match_parameters(model):
    drafts = [
        Draft(build_variant("seq2seq", {"steps": 5}, hidden=256, embedding=128), "cpu"),
        Draft(build_variant(model, {"steps": 5}), "cpu"),
    ]
    first, second = match_parameters(drafts)
    assert first == drafts[0].variant
    counts = [Draft(variant, "cpu").count_parameters() for variant in (first, second)]
    assert counts[1] == pytest.approx(counts[0], rel=0.05)
    assert counts[0] == drafts[0].count_parameters()


def test_plans_are_plain_json(tmp_path):
    plan = build_plan(build_variant("seq2seq"), texts=("a b",), command="regard compare")
    plan.save(tmp_path)
    record = json.loads((tmp_path / "plan.json").read_text())
    assert record.keys() == {"format", *(field.name for field in dataclasses.fields(Plan))}
