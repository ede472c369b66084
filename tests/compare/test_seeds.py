"""`regard train --seeds`: several trainings in one folder, which predict together."""

import re
import shutil
from pathlib import Path
from statistics import mean, stdev

import pytest
import torch

import regard
from regard.cli import main
from regard.compare.seeds import SeedResult, read_plan, summarize_results
from regard.compare.seeds import main as run_worker
from regard.errors import RegardError
from regard.run import Run

SIZES = "--steps 60 --batch-tokens 300 --validate-every 30 --hidden 16 --embedding 16 --corpus-size 200 --device cpu"
OPTIONS = [
    *SIZES.split(" "),
    "--data.corpus.alphabet",
    "abcd",
    "--data.corpus.min-length",
    "2",
    "--data.corpus.max-length",
    "4",
    "--learning-rate",
    "0.02",
]


def run_here(trainings, *, jobs, quiet):
    """Train one after another in this process, which has imported torch already."""
    for training in trainings:
        if not training.result.exists():
            *_, folder, seed = training.command
            assert run_worker([folder, seed]) == 0
        training.state = "done"


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr("regard.compare.seeds.run_trainings", run_here)


@pytest.fixture(scope="module")
def folder(share) -> Path:
    """Three seeds of a small model that has learned to reverse, a little."""

    def fill(path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("regard.compare.seeds.run_trainings", run_here)
            assert main(["train", "reverse", *OPTIONS, "--seeds", "3", "--out", str(path / "seeds")]) == 0

    return share("seeds", fill) / "seeds"


def test_all_seeds_share_data_and_tokens_and_differ_in_parameters(folder):
    cards = [Run(folder / f"seed-{seed}").read_card() for seed in (0, 1, 2)]
    assert len({card["sha256"]["tokenizer.json"] for card in cards}) == 1
    assert len({card["data"]["sha256"] for card in cards}) == 1
    assert len({card["sha256"]["model.safetensors"] for card in cards}) == 3
    assert [Run(folder / f"seed-{seed}").read_recipe()["training"]["seed"] for seed in (0, 1, 2)] == [0, 1, 2]


def test_the_results_are_reported_with_mean_and_spread():
    results = [SeedResult(seed, "exact", value, 100) for seed, value in ((0, 0.7), (1, 0.74), (5, 0.66))]
    assert str(results[0]) == "seed 0: exact 70.0 % at step 100"
    assert summarize_results(results) == (
        "mean of 3 seeds: exact 70.0 % (standard deviation 4.0, lowest 66.0, highest 74.0)"
    )
    assert summarize_results(results[:1]) == "mean of 1 seed: exact 70.0 %"
    losses = [SeedResult(0, "loss", 1.5, 10), SeedResult(1, "loss", 1.25, 10)]
    assert summarize_results(losses) == (
        f"mean of 2 seeds: valid loss {mean([1.5, 1.25]):.3f} "
        f"(standard deviation {stdev([1.5, 1.25]):.3f}, lowest 1.250, highest 1.500)"
    )


def test_a_finished_folder_is_reported_again_and_seeds_can_be_added(folder, here, tmp_path, capsys):
    copy = tmp_path / "copy"
    assert main(["train", "reverse", *OPTIONS, "--seeds", "4,2", "--out", str(copy), "--quiet"]) == 0
    out = capsys.readouterr().out
    assert [line.partition(":")[0] for line in out.splitlines()] == ["seed 4", "seed 2", "mean of 2 seeds"]
    before = Run(copy / "seed-4").model_file.stat().st_mtime_ns
    assert main(["train", "--out", str(copy), "--seeds", "1", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert [line.partition(":")[0] for line in out.splitlines()] == ["seed 4", "seed 2", "seed 0", "mean of 3 seeds"]
    assert Run(copy / "seed-4").model_file.stat().st_mtime_ns == before
    assert read_plan(copy).seeds == (4, 2, 0)
    checksums = [Run(path).read_card()["sha256"]["model.safetensors"] for path in (copy / "seed-2", folder / "seed-2")]
    assert checksums[0] == checksums[1]  # a seed gives the same model, whatever the others are


def test_the_folder_is_an_ensemble_everywhere(folder, tmp_path, capsys):
    ensemble, members = regard.load(folder), [regard.load(folder / f"seed-{seed}") for seed in (0, 1, 2)]
    assert ensemble.parameters == sum(member.parameters for member in members)
    assert ensemble.name == "bahdanau x 3"
    target = "c b a"
    scores = [member.force(["a b c"], [target])[0].log_probability for member in members]
    score = ensemble.force(["a b c"], [target])[0].log_probability
    assert min(scores) <= score <= max(scores)
    prediction = ensemble.predict("a b c", return_weights=True)
    forced = members[0].force(["a b c"], [prediction.text], return_weights=True)[0]
    torch.testing.assert_close(prediction.weights, forced.weights)
    assert regard.load([folder / "seed-1"]).predict("a b c").record() == members[1].predict("a b c").record()
    (tmp_path / "pairs.tsv").write_text("a b c\tc b a\nd a\ta d\n")
    for words in (["predict", "a b c"], ["evaluate", str(tmp_path / "pairs.tsv")], ["look", "a b c"]):
        assert main([words[0], str(folder), *words[1:]]) == 0
    assert capsys.readouterr().out.startswith(f"{prediction.text}\ntext\n  exact match")


def test_a_folder_that_is_not_finished_is_noted(folder, tmp_path, capsys):
    part = tmp_path / "part"
    part.mkdir()
    (part / "seeds.json").write_text((folder / "seeds.json").read_text())
    shutil.copytree(folder / "seed-1", part / "seed-1")
    run = Run(part / "seed-1")
    run.save_model(run.read_parameters(), {"unvalidated": {"step": 7}})
    words = ["predict", str(part), "a b", "--device", "cpu"]
    assert main(words) == 0
    assert capsys.readouterr().err == (
        f"note: {part}: 1 of 3 seeds loaded, the rest are not trained yet (to train them: regard train --out {part})\n"
        f"note: {part}/seed-1: training stopped at step 7, before the first validation\n"
    )
    assert main([*words, "--quiet"]) == 0
    assert main(["predict", str(folder), "a b", "--device", "cpu"]) == 0
    assert capsys.readouterr().err == ""


def test_runs_are_combined_by_an_option(folder, capsys):
    first, *others = (str(folder / f"seed-{seed}") for seed in (0, 1, 2))
    added = [word for other in others for word in ("--ensemble", other)]
    assert main(["predict", str(folder), "a b c", "--jsonl"]) == 0
    expected = capsys.readouterr().out
    assert main(["predict", first, "a b c", "--jsonl", *added]) == 0
    assert capsys.readouterr().out == expected  # the folder is all its runs
    assert main(["look", str(folder), "a b c", "--ensemble", first]) == 0
    assert capsys.readouterr().out.startswith("bahdanau x 4: ")  # one of them twice
    assert regard.load([folder, first]).name == "bahdanau x 4"


def test_what_cannot_be_done_with_several_is_one_line(folder, letters_run, capsys):
    out, first = str(folder), str(folder / "seed-0")
    again = "choose another --out, or run the same command to resume them"
    for words, message in (
        (["inspect", out], f"{out} holds several runs; pass one of them, {out}/seed-N"),
        (["explain", out, "a b"], "explain: an ensemble cannot be explained; pass one of its runs"),
        (
            ["predict", out, "a b", "--ensemble", "none"],
            "none: not found; expected a run folder created by regard train",
        ),
        (["look", "hf:x", "a b", "--ensemble", out], "--ensemble combines runs made by regard train, got hf:x"),
        (
            ["train", "reverse", *OPTIONS, "--hidden", "8", "--seeds", "3", "--out", out],
            f"{out}: cannot resume: trainings were started with model.hidden = 16, got 8; {again}",
        ),
        (
            ["train", "reverse", *OPTIONS[:-4], "--seeds", "3", "--out", out],
            f"{out}: cannot resume: trainings were started with data.corpus.max_length = 4, got the default; "
            f"1 more setting changed; {again}",
        ),
        (
            ["train", "reverse", *OPTIONS, "--seeds", "3", "--out", out, "--from", first],
            f"{out}: cannot resume: trainings were started without --from, now with --from {first}; {again}",
        ),
        (
            ["train", "reverse", "--seeds", "2", "--out", str(folder.parent)],
            f"{folder.parent} is not empty and holds no trainings with several seeds; choose another --out",
        ),
        (["train", "reverse", "--seeds", "0", "--out", "x"], "--seeds must be at least 1, got 0"),
        (["train", "reverse", "--seeds", "1,1", "--out", "x"], "--seeds: a seed is given twice: 1,1"),
        (["train", "reverse", "--seeds", "2", "--seed", "1", "--out", "x"], "--seed cannot be combined with --seeds"),
        (["train", "reverse", "--jobs", "2", "--out", "x"], "--jobs requires --seeds"),
        (
            ["train", "-", "--seeds", "2", "--out", "x"],
            "--seeds: data cannot be read from stdin (-); save it to a file",
        ),
    ):
        assert main(words) == 2
        assert capsys.readouterr().err == f"regard: {message}\n"
    with pytest.raises(RegardError) as caught:
        regard.load([folder / "seed-0", letters_run])
    assert str(caught.value) == (
        f"{letters_run} has other tokens than {folder / 'seed-0'}; the models of an ensemble must share tokenizers"
    )


def test_tasks_are_not_mixed(folder, text_run):
    with pytest.raises(RegardError) as caught:
        regard.load([folder / "seed-0", text_run])
    assert str(caught.value) == f"{text_run}: expected a run of the task pairs, as {folder / 'seed-0'}, got text"
    with pytest.raises(RegardError, match=r"^load: expected at least one run, got none$"):
        regard.load([])


@pytest.mark.parametrize("name", ["one", "several", "context", "crf", "no-crf", "plain"])
def test_two_copies_of_a_labeler_are_the_one(name, label_runs):
    run, text = label_runs[name], "one two good bad ann bob"
    first, second = (predict(text) for predict in (regard.load(run).predict, regard.load([run, run]).predict))
    if name in ("crf", "no-crf", "plain"):
        assert (first.tags, first.spans) == (second.tags, second.spans)
        assert first.probabilities == pytest.approx(second.probabilities)
    else:
        assert first.labels == second.labels
        assert [each.label for each in first.ranked] == [each.label for each in second.ranked]
        values = [[each.probability for each in one.ranked] for one in (first, second)]
        assert values[0] == pytest.approx(values[1])
    if name != "plain":
        assert regard.load([run, run]).look(text).columns == regard.load(run).look(text).columns


def test_two_copies_of_a_language_model_write_the_same(text_run, gpt_run):
    for run in (text_run, gpt_run):
        one, two = regard.load(run), regard.load([run, run])
        assert two.score_texts("the cat").log_probability == pytest.approx(one.score_texts("the cat").log_probability)
        options = {"max_tokens": 6, "seed": 3}
        assert two.generate("the", **options).text == one.generate("the", **options).text


@pytest.mark.slow
def test_the_real_command_trains_side_by_side(tmp_path, capfd):
    words = ["train", "reverse", *OPTIONS, "--seeds", "2", "--jobs", "2", "--out", str(tmp_path / "runs")]
    assert main([*words, "--steps", "3", "--validate-every", "3"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[2].startswith("mean of 2 seeds: exact ")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["results", "seed-0", "seed-1", "seeds.json"]
    assert re.search(r"seed 1: done  step 3  .* s\n", err)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ('"base": 0', "is corrupt: plan.base: expected a string, got 0"),
        ('"seeds": ["a"]', "is corrupt: plan.seeds: expected a list of integers"),
        ('"recipe": []', r"is corrupt: plan: \[recipe\]: expected a table, got \[\]"),
        ('"device": "cpu", "seeds": [0, -1]', "is corrupt: seeds must be at least 0, got -1"),
        ('"bases": 0', 'is corrupt: plan: unknown setting "bases"'),
    ],
)
def test_a_corrupt_list_of_seeds_is_one_line(field, message, tmp_path):
    (tmp_path / "seeds.json").write_text(f'{{"format": 1, "recipe": {{}}, "seeds": [0], {field}}}')
    with pytest.raises(RegardError, match=message):
        read_plan(tmp_path)


@pytest.mark.parametrize("seeds", ["0", "[true]", f"[{10**300}]"])
def test_a_folder_with_a_corrupt_list_of_seeds_does_not_load(seeds, tmp_path):
    (tmp_path / "seeds.json").write_text(f'{{"format": 1, "recipe": {{}}, "seeds": {seeds}}}')
    with pytest.raises(RegardError, match=r"seeds\.json is corrupt: seeds"):
        regard.load(tmp_path)
