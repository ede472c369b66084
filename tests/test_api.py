"""Training as a whole: tiny real models, in real run folders."""

import hashlib
import json
import math
import os
import re
import shutil
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import jaxtyping
import pytest
import torch

import regard
from regard import memory
from regard.api import train
from regard.checkpoint import average_parameters, list_checkpoints
from regard.cli import main
from regard.data.pair_check import pluralize
from regard.errors import RegardError
from regard.files import read_tensors
from regard.models import build
from regard.run import Run
from regard.training import loop
from regard.training.optimizer import Optimizer
from regard.training.stop import Terminated
from tests.signing import edit_card

TINY = {
    "data": {"train": "copy", "corpus_size": 200, "corpus": {"min_length": 2, "max_length": 4, "alphabet": "abcd"}},
    "model": {"name": "bahdanau", "hidden": 12, "embedding": 8, "dropout": 0.3},
    "training": {"steps": 12, "batch_tokens": 100, "validate_every": 4, "max_validation": 20, "patience": 0},
}


def changed(**sections):
    return {**TINY, **{name: {**TINY.get(name, {}), **values} for name, values in sections.items()}}


def without_times(run: Path) -> list[dict[str, float]]:
    return [{k: v for k, v in line.items() if k != "seconds"} for line in Run(run).read_metrics()]


def files_equal(a: Path, b: Path) -> bool:
    first, second = read_tensors(a), read_tensors(b)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


class StopError(Exception):
    """A simulated crash."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradient_accumulation": 2, "ema_decay": 0.9, "average_checkpoints": 2},
        {"schedule": "inverse-sqrt", "max_grad_norm": 0.0},
    ],
)
@pytest.mark.parametrize("name", ["bahdanau", "transformer"])
def test_a_run_that_was_stopped_anywhere_ends_in_the_same_bits(name, settings, tmp_path, monkeypatch):
    model = TINY["model"] if name == "bahdanau" else {"name": name, "width": 12, "heads": 2, "dropout": 0.3}
    recipe = {**changed(training=settings), "model": model}
    train(recipe, tmp_path / "whole", quiet=True)
    update = loop.Trainer.update

    def fragile(trainer):
        update(trainer)
        if trainer.counters.step in (6, 9) and trainer.counters.step not in met:
            met.append(trainer.counters.step)
            raise StopError if trainer.counters.step == 6 else KeyboardInterrupt

    met: list[int] = []
    monkeypatch.setattr(loop.Trainer, "update", fragile)
    for expected in (StopError, KeyboardInterrupt):
        with pytest.raises(expected):
            train(recipe, tmp_path / "broken", quiet=True)
    train(recipe, tmp_path / "broken", quiet=True)
    assert met == [6, 9]
    assert files_equal(tmp_path / "whole/model.safetensors", tmp_path / "broken/model.safetensors")
    last = list_checkpoints(Run(tmp_path / "whole"))[-1].path.name
    for part in ("model", "optimizer"):
        assert files_equal(
            tmp_path / f"whole/training/{last}/{part}.safetensors",
            tmp_path / f"broken/training/{last}/{part}.safetensors",
        )
    assert without_times(tmp_path / "whole") == without_times(tmp_path / "broken")
    assert len(without_times(tmp_path / "whole")) == 3


def test_ctrl_c_saves_at_the_step_where_it_was_pressed(tmp_path, monkeypatch, capsys):
    update = loop.Trainer.update

    def pressed(trainer):
        update(trainer)
        if trainer.counters.step == 6:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loop.Trainer, "update", pressed)
    with pytest.raises(KeyboardInterrupt):
        train(TINY, tmp_path / "run")
    assert list_checkpoints(Run(tmp_path / "run"))[-1].step == 6
    best = Run(tmp_path / "run").read_card()["best"]
    assert capsys.readouterr().err.endswith(
        f"kept: checkpoint of step 6; best so far: exact {100 * best['value']:.1f} % at step 4\n"
        "stopped; run the same command again to resume at step 6\n"
    )
    with monkeypatch.context() as undone:
        undone.setattr(loop.Trainer, "update", update)
        train(TINY, tmp_path / "run")
    assert (
        f"\nresuming at step 6 of 12; best so far: exact {100 * best['value']:.1f} % at step 4\n"
        in capsys.readouterr().err
    )


def stop_at(step: int, number: int, monkeypatch) -> None:
    """Send a signal to this process after a step."""
    update = loop.Trainer.update

    def stopped(trainer):
        update(trainer)
        if trainer.counters.step == step:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(loop.Trainer, "update", stopped)


@pytest.mark.parametrize("settings", [{}, {"ema_decay": 0.9}])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_before_the_first_validation_saves_a_model_that_is_not_validated(
    number, settings, tmp_path, monkeypatch, capsys
):
    run, recipe = Run(tmp_path / "run"), changed(training=settings)
    train(recipe, tmp_path / "whole", quiet=True)
    with monkeypatch.context() as patched:
        stop_at(2, number, patched)
        with pytest.raises(Terminated if number == signal.SIGTERM else KeyboardInterrupt):
            train(recipe, run.path)
    assert capsys.readouterr().err.endswith(
        "kept: checkpoint of step 2; model of step 2, not validated\n"
        "stopped; run the same command again to resume at step 2\n"
    )
    card = run.read_card()
    assert (card["unvalidated"], "best" in card) == ({"step": 2}, False)
    (checkpoint,) = list_checkpoints(run)
    part = checkpoint.load_tensors("average" if settings else "model")
    assert all(torch.equal(tensor, part[name]) for name, tensor in run.read_parameters().items() if name in part)
    assert main(["inspect", str(run.path)]) == 0
    assert "\nbest: none yet; the model is that of step 2, not validated\n" in capsys.readouterr().out
    assert main(["predict", str(run.path), "a b", "--device", "cpu"]) == 0
    note = f"note: {run.path}: training stopped at step 2, before the first validation\n"
    assert note in capsys.readouterr().err
    train(recipe, run.path)
    assert "\nresuming at step 2 of 12; not validated yet\n" in capsys.readouterr().err
    assert "unvalidated" not in run.read_card()
    assert files_equal(tmp_path / "whole/model.safetensors", run.model_file)
    assert without_times(tmp_path / "whole") == without_times(run.path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_before_the_first_step_says_what_is_kept(number, tmp_path, monkeypatch, capsys):
    def stopped(*_):
        os.kill(os.getpid(), number)

    with monkeypatch.context() as patched:
        patched.setattr("regard.api.initialize_model", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(TINY, tmp_path / "run")
    assert capsys.readouterr().err.endswith("stopped before the first step; nothing was saved\n")
    assert not (tmp_path / "run").exists()
    train(TINY, tmp_path / "run", quiet=True)
    before = {
        path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name != "log"
    }
    with monkeypatch.context() as patched:
        patched.setattr("regard.api.initialize_model", stopped)
        with pytest.raises(KeyboardInterrupt):
            train({"training": {"steps": 16}}, tmp_path / "run")
    assert capsys.readouterr().err.endswith("stopped before the first step; the run is as it was\n")
    assert all(path.read_bytes() == content for path, content in before.items())


def test_the_same_command_restores_a_damaged_model_and_never_signs_it(tmp_path, capsys):
    run = Run(tmp_path / "run")
    train(TINY, run.path, quiet=True)
    model, card = run.model_file.read_bytes(), run.card_file.read_bytes()
    for damaged in (model[:-1] + bytes([model[-1] ^ 1]), model[:100], None):
        run.model_file.unlink() if damaged is None else run.model_file.write_bytes(damaged)
        with pytest.raises(RegardError, match=r"to restore it, run regard train --out "):
            regard.load(run.path)
        train(TINY, run.path)
        assert "; restored it from training/copies\n" in capsys.readouterr().err
        assert (run.model_file.read_bytes(), run.card_file.read_bytes()) == (model, card)
        regard.load(run.path)


def test_the_same_command_restores_a_damaged_card(tmp_path, capsys):
    run = Run(tmp_path / "run")
    train(TINY, run.path, quiet=True)
    card = run.card_file.read_bytes()
    for damaged in (card.replace(b'"threads": 1', b'"threads": 3'), card[:50], None):
        run.card_file.unlink() if damaged is None else run.card_file.write_bytes(damaged)
        with pytest.raises(RegardError, match=r"to restore it, run regard train --out "):
            regard.load(run.path)
        train(TINY, run.path)
        assert "; restored it from training/copies\n" in capsys.readouterr().err
        assert run.card_file.read_bytes() == card


def test_without_a_checkpoint_a_trained_model_is_not_replaced(tmp_path):
    run = Run(tmp_path / "run")
    train(changed(training={"metric": "loss"}), run.path, quiet=True)
    assert run.read_card()["best"]["step"] == 12
    model, metrics = run.model_file.read_bytes(), run.metrics_file.read_bytes()
    shutil.rmtree(run.checkpoints)
    with pytest.raises(RegardError) as caught:
        train({"training": {"steps": 16}}, run.path, quiet=True)
    assert str(caught.value) == (
        f"{run.path}: cannot resume: training/ has no intact checkpoint, and starting over would replace the model of "
        f"step 12; choose another --out, or pass --from {run.path}"
    )
    assert (run.model_file.read_bytes(), run.metrics_file.read_bytes()) == (model, metrics)
    edit_card(run.path, best={"step": "12"})
    with pytest.raises(RegardError) as caught:
        train({"training": {"steps": 16}}, run.path, quiet=True)
    assert str(caught.value) == f'{run.card_file}: best.step: expected an integer, got "12"'


@pytest.mark.parametrize("damage", ["cut", "middle", "remove"])
def test_damaged_metrics_are_restored(damage, tmp_path, capsys):
    train(TINY, tmp_path / "run", quiet=True)
    file = tmp_path / "run/metrics.jsonl"
    content = file.read_bytes()
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(content[:-30] if damage == "cut" else content.replace(b'"step": 8', b'"step" 8'))
    train(TINY, tmp_path / "run")
    damaged = "missing" if damage == "remove" else "damaged or edited (kept as metrics.jsonl.damaged)"
    assert f"note: metrics.jsonl was {damaged}; restored it from training/copies\n" in capsys.readouterr().err
    assert file.read_bytes() == content
    file.unlink()
    (tmp_path / "run/training/copies/metrics.jsonl").unlink()
    train(TINY, tmp_path / "run")
    assert "note: metrics.jsonl was damaged; restored it from the checkpoint of step 12\n" in capsys.readouterr().err
    assert file.read_bytes() == content


def test_a_checkpoint_of_a_newer_version_is_one_line(tmp_path):
    train(TINY, tmp_path / "run", quiet=True)
    newest = list_checkpoints(Run(tmp_path / "run"))[-1].path
    for change, line in (
        ({"version": 2}, f"{newest}/state.json: expected a training state of version 1, got 2; "),
        ({"mood": 1}, f"{tmp_path}/run: cannot resume: run was started by another version of regard (only the "),
    ):
        state = json.loads((newest / "state.json").read_text())
        (newest / "state.json").write_text(json.dumps({**state, **change}))
        sums = json.loads((newest / "sha256.json").read_text())
        sums["state.json"] = hashlib.sha256((newest / "state.json").read_bytes()).hexdigest()
        (newest / "sha256.json").write_text(json.dumps(sums))
        with pytest.raises(RegardError) as caught:
            train(TINY, tmp_path / "run", quiet=True)
        assert str(caught.value).startswith(line)
        (newest / "state.json").write_text(json.dumps(state))


def test_a_run_resumes_from_any_folder_and_after_run_and_data_moved(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    words = ["some words", "other words here", "words again", "again some other", "here and there"]
    (tmp_path / "a/pairs.tsv").write_text("".join(f"{a} {b}\t{b} {a}\n" for a in words for b in words))
    monkeypatch.chdir(tmp_path / "a")
    train({**TINY, "data": {"train": "pairs.tsv"}}, "run", quiet=True)
    assert Run(Path("run")).read_recipe()["data"]["train"] == str(tmp_path / "a/pairs.tsv")
    monkeypatch.chdir(tmp_path / "b")
    (tmp_path / "a/run").rename("moved")
    assert train({"training": {"steps": 16}}, "moved", quiet=True).step == 16
    (tmp_path / "a/pairs.tsv").rename("pairs.tsv")
    with pytest.raises(RegardError) as caught:
        train({"training": {"steps": 20}}, "moved", quiet=True)
    assert str(caught.value) == (
        f'moved: cannot resume: data.train = "{tmp_path}/a/pairs.tsv" is missing; '
        "if it has moved, pass --train with the new path"
    )
    again = ["train", "--out", "moved", "--train", "pairs.tsv", "--steps", "20", "--device", "cpu", "--quiet"]
    assert main(again) == 0
    assert Run(Path("moved")).read_metrics()[-1]["step"] == 20
    assert Run(Path("moved")).read_recipe()["data"]["train"] == str(tmp_path / "b/pairs.tsv")


@pytest.mark.slow
def test_a_seed_decides_everything(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(changed(training={"seed": seed}), tmp_path / name, quiet=True)
    assert files_equal(tmp_path / "a/model.safetensors", tmp_path / "b/model.safetensors")
    assert not files_equal(tmp_path / "a/model.safetensors", tmp_path / "c/model.safetensors")


def test_accumulated_batches_give_the_gradient_of_one_large_batch(tmp_path):
    """With all examples in each update, batches of 50 and of 400 tokens must lead to the same parameters."""
    data = {"corpus_size": 24, "corpus": {"min_length": 3, "max_length": 3, "alphabet": "abcd"}}
    model = {"dropout": 0.0}
    for name, tokens, accumulate in (("one", 24 * 4, 1), ("four", 6 * 4, 4)):
        settings = {"batch_tokens": tokens, "gradient_accumulation": accumulate, "steps": 2, "validate_every": 2}
        train(changed(data=data, model=model, training=settings), tmp_path / name, quiet=True)
    one, four = (read_tensors(tmp_path / f"{name}/model.safetensors") for name in ("one", "four"))
    for name in one:
        torch.testing.assert_close(one[name], four[name], rtol=1e-4, atol=1e-5)


def test_a_run_names_its_threads_and_those_it_was_started_with(tmp_path, capsys):
    run = Run(tmp_path / "run")
    train(changed(training={"steps": 1}), run.path)
    assert f"\nthreads: 1 on {pluralize(os.cpu_count() or 1, 'core')}\n" in capsys.readouterr().err
    assert run.read_card()["threads"] == torch.get_num_threads() == 1
    run.write_files({**run.read_card(), "threads": 3}, {})
    train(changed(training={"steps": 2}), run.path)
    note = "note: run was started with 3 threads, now 1; results may differ in the last bits"
    assert note in capsys.readouterr().err.splitlines()
    assert run.read_card()["threads"] == 3


def test_a_run_that_becomes_slow_says_why_once(tmp_path, monkeypatch, capsys):
    now, rate = [0.0], loop.compute_learning_rate

    def slow(step, settings):  # called once in an update
        now[0] += 0.25 if step <= 25 else 1.0
        return rate(step, settings)

    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(loop, "compute_learning_rate", slow)
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 9.0, 9.0), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    train(changed(training={"steps": 70, "validate_every": 70}), tmp_path / "run")
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: updates")]
    assert notes == [
        "note: updates take 4.0 times as long as at the start (1 s, was 0.25 s); the load average is 9.0 on 2 cores, "
        "1 thread used: other programs compete for the cores; wait until they are done"
    ]


def test_a_finished_run_says_so_and_more_steps_go_on(tmp_path):
    assert train(TINY, tmp_path / "run", quiet=True).step == 12
    before = (tmp_path / "run/metrics.jsonl").read_text()
    assert train(TINY, tmp_path / "run", quiet=True).step == 12
    assert (tmp_path / "run/metrics.jsonl").read_text() == before
    assert train({"training": {"steps": 16}}, tmp_path / "run", quiet=True).step == 16
    assert [line["step"] for line in Run(tmp_path / "run").read_metrics()] == [4, 8, 12, 16]


@pytest.mark.slow
def test_other_settings_and_other_data_are_refused(tmp_path):
    run = tmp_path / "run"
    train(TINY, run, quiet=True)
    with pytest.raises(
        RegardError, match=r"run: cannot resume: run was started with model.hidden = 12, got 16; choose another --out$"
    ):
        train(changed(model={"hidden": 16}), run, quiet=True)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{'a b c d'[: 2 * n + 1]}\t{'b c d a'[: 2 * n + 1]}\n" for n in range(4)) * 5)
    mine = changed(data={"train": str(pairs)}) | {"data": {"train": str(pairs)}}
    with pytest.raises(RegardError, match=r"run was started with data.corpus.alphabet = "):
        train(mine, run, quiet=True)
    train(mine, tmp_path / "mine", quiet=True)
    pairs.write_text(pairs.read_text() + "a b\ta b\n")
    with pytest.raises(RegardError, match=r"run was started with other data; choose another --out, or pass --from "):
        train(mine, tmp_path / "mine", quiet=True)


def test_bpe_dropout_needs_bpe(tmp_path):
    line = r"^text.bpe_dropout requires a bpe tokenizer; set --source-tokenizer or --target-tokenizer to bpe$"
    with pytest.raises(RegardError, match=line):
        train({**TINY, "text": {"bpe_dropout": 0.1}}, tmp_path / "run", quiet=True)


def test_what_cannot_begin_leaves_nothing_behind(tmp_path):
    missing = changed(data={"train": str(tmp_path / "missing.tsv"), "corpus": {}})
    with pytest.raises(RegardError, match=r"missing.tsv"):
        train(missing, tmp_path / "runs/run", quiet=True)
    assert not (tmp_path / "runs/run").exists()


def test_another_model_is_refused_by_its_name(tmp_path):
    train(TINY, tmp_path / "run", quiet=True)
    with pytest.raises(
        RegardError, match=r"run: cannot resume: run was started with model bahdanau, got transformer; choose"
    ):
        train({**TINY, "model": {"name": "transformer", "width": 8}}, tmp_path / "run", quiet=True)


def explode(monkeypatch, steps) -> list[bool]:
    """Make the gradient of some updates infinite; return a list that records whether each update changed anything."""
    update, step, changed = loop.Trainer.update, Optimizer.step, []

    def watched(trainer):
        def exploding(optimizer, rate):
            if trainer.counters.step in steps:
                next(iter(optimizer.parameters.values())).grad[0] = math.inf
            return step(optimizer, rate)

        monkeypatch.setattr(Optimizer, "step", exploding)
        parts = [part for name, part in trainer.engine.state_dict().items() if name in ("model", "average")]
        before = [tensor.clone() for part in parts for tensor in part.values()]
        update(trainer)
        changed.append(not all(map(torch.equal, before, (tensor for part in parts for tensor in part.values()))))

    monkeypatch.setattr(loop.Trainer, "update", watched)
    return changed


@pytest.mark.parametrize("settings", [{}, {"ema_decay": 0.9, "max_grad_norm": 0.0, "gradient_accumulation": 2}])
def test_an_update_without_a_finite_gradient_is_left_out_and_counted(settings, tmp_path, monkeypatch):
    changed_by = explode(monkeypatch, {6, 7, 10})
    train(changed(training=settings), tmp_path / "run", quiet=True)
    assert changed_by == [step not in (6, 7, 10) for step in range(1, 13)]
    assert [line.get("skipped") for line in Run(tmp_path / "run").read_metrics()] == [None, 2, 3]
    said = (tmp_path / "run/log").read_text()
    assert len(re.findall("note: step", said)) == 1
    assert re.search(r"note: step 6: gradient norm is (inf|nan) for the batch of .*; such updates are skipped", said)
    assert re.search(r"step     12 .* 3 updates skipped", said)
    assert all(tensor.isfinite().all() for tensor in read_tensors(tmp_path / "run/model.safetensors").values())


@pytest.mark.slow
def test_a_run_that_left_updates_out_was_stopped_and_ends_in_the_same_bits(tmp_path, monkeypatch):
    explode(monkeypatch, {1, 6, 7})
    train(changed(training={"ema_decay": 0.9}), tmp_path / "whole", quiet=True)
    update = loop.Trainer.update

    def pressed(trainer):
        update(trainer)
        if trainer.counters.step == 6 and not met:
            met.append(6)
            os.kill(os.getpid(), signal.SIGINT)

    met: list[int] = []
    monkeypatch.setattr(loop.Trainer, "update", pressed)
    with pytest.raises(KeyboardInterrupt):
        train(changed(training={"ema_decay": 0.9}), tmp_path / "broken", quiet=True)
    train(changed(training={"ema_decay": 0.9}), tmp_path / "broken", quiet=True)
    last = list_checkpoints(Run(tmp_path / "whole"))[-1].path.name
    for part in ("model", "optimizer", "average"):
        assert files_equal(*(tmp_path / run / f"training/{last}/{part}.safetensors" for run in ("whole", "broken")))
    assert without_times(tmp_path / "whole") == without_times(tmp_path / "broken")
    assert without_times(tmp_path / "broken")[-1]["skipped"] == 3


@pytest.mark.slow
def test_too_many_updates_left_out_in_a_row_end_training_and_name_the_batch(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        explode(patch, {*range(3, 22), *range(23, 42)})  # twice 19 of them
        train(changed(training={"steps": 44, "validate_every": 22}), tmp_path / "twice", quiet=True)
    assert Run(tmp_path / "twice").read_metrics()[-1]["skipped"] == 38
    explode(monkeypatch, range(3, 40))
    result = r"^step 22: gradient norm \(not finite for 20 updates in a row\) is (inf|nan); the likely cause is a "
    with pytest.raises(RegardError, match=result + r".*; try a lower --training.learning-rate in another --out "):
        train(changed(training={"steps": 44}), tmp_path / "run", quiet=True)
    assert list_checkpoints(Run(tmp_path / "run"))[-1].step == 20


def test_of_equally_good_parameters_those_with_the_lower_loss_are_kept(tmp_path):
    train(changed(training={"metric": "exact", "learning_rate": 1e-4}), tmp_path / "run", quiet=True)
    metrics = Run(tmp_path / "run").read_metrics()
    assert [line["valid_exact"] for line in metrics] == [0, 0, 0]  # nothing is right so early
    best = min(metrics, key=lambda line: line["valid_loss"])
    assert Run(tmp_path / "run").read_card()["best"]["step"] == best["step"] == 12


@pytest.mark.slow
def test_a_run_started_from_another_goes_on_from_it(tmp_path, monkeypatch):
    train(TINY, tmp_path / "base", quiet=True)
    tiny = {"data": TINY["data"], "training": {**TINY["training"], "learning_rate": 1e-12}}
    update = loop.Trainer.update

    def broken(trainer):
        raise StopError

    monkeypatch.setattr(loop.Trainer, "update", broken)
    with pytest.raises(StopError):
        train(tiny, tmp_path / "tuned", base=tmp_path / "base", quiet=True)
    monkeypatch.setattr(loop.Trainer, "update", update)
    with pytest.raises(
        RegardError, match=r"tuned: cannot resume: run was started with --from .*base; choose another --out$"
    ):
        train(tiny, tmp_path / "tuned", base=tmp_path / "other", quiet=True)
    train(tiny, tmp_path / "tuned", quiet=True)  # before its first checkpoint, and without base
    base, tuned = (read_tensors(tmp_path / f"{name}/model.safetensors") for name in ("base", "tuned"))
    for name in base:
        torch.testing.assert_close(base[name], tuned[name], atol=1e-6, rtol=0)


def test_learned_positions_limit_what_is_decoded(tmp_path):
    model = {"name": "transformer", "width": 12, "heads": 2, "positions": "learned", "max_length": 8}
    train({**TINY, "model": model}, tmp_path / "run", quiet=True)
    predictor = regard.load(tmp_path / "run")
    assert len(predictor.predict("a b c d").target_tokens) <= 8
    with pytest.raises(RegardError, match=r"^source 2 has 9 tokens; transformer reads at most 7$"):
        predictor.predict(["a b", "a b c d a b c d a"])
    with pytest.raises(
        RegardError,
        match=r"^model.max_length must be at least 5, the length of the longest text, got 4; increase it or lower ",
    ):
        train({**TINY, "model": {**model, "max_length": 4}}, tmp_path / "short", quiet=True)


def test_a_loss_that_is_no_number_names_its_batch_and_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    forward = loop.Trainer.update

    def poisoned(trainer):
        if trainer.counters.step == 5:
            with torch.no_grad():
                next(trainer.engine.model.parameters()).fill_(math.nan)
        forward(trainer)

    monkeypatch.setattr(loop.Trainer, "update", poisoned)
    cause = r"^step 6: loss is nan; the likely cause is a learning rate that is too high \([\d.e-]+ at this step\)"
    batch = r' in another --out \(batch of examples [\d, and more]+, starting with "[a-d ]+"\)$'
    with pytest.raises(RegardError, match=cause + r"; try a lower --training.learning-rate" + batch):
        train(TINY, tmp_path / "run", quiet=True)
    precise = {**TINY, "training": {**TINY["training"], "precision": "bfloat16"}}
    advice = r", or the precision bfloat16; try a lower --training.learning-rate or --training.precision float32"
    with pytest.raises(RegardError, match=cause + advice + batch):
        train(precise, tmp_path / "precise", quiet=True)
    assert list_checkpoints(Run(tmp_path / "run"))[-1].step == 4


def test_tuning_starts_from_the_parameters_of_another_run(tmp_path):
    train(TINY, tmp_path / "base", quiet=True)
    data = {**TINY["data"], "train": "reverse"}
    train(
        {"data": data, "training": {**TINY["training"], "steps": 1, "learning_rate": 1e-12}},
        tmp_path / "tuned",
        base=tmp_path / "base",
        quiet=True,
    )
    base, tuned = (read_tensors(tmp_path / f"{name}/model.safetensors") for name in ("base", "tuned"))
    for name in base:
        torch.testing.assert_close(base[name], tuned[name], atol=1e-6, rtol=0)
    assert (tmp_path / "base/tokenizer.json").read_text() == (tmp_path / "tuned/tokenizer.json").read_text()
    with pytest.raises(RegardError, match=r"--from requires the same model; .*: expected shape \(.*\), got \(.*\)$"):
        train(
            {"data": data, "model": {"hidden": 20}, "training": TINY["training"]},
            tmp_path / "wider",
            base=tmp_path / "base",
            quiet=True,
        )


def test_two_trainings_do_not_write_to_one_folder(tmp_path):
    run = Run(tmp_path / "run")
    with run.lock(), pytest.raises(RegardError, match=r"run is in use by another training; wait, or choose another"):
        train(TINY, run.path, quiet=True)


def test_patience_ends_training(tmp_path):
    recipe = changed(
        training={"steps": 100, "validate_every": 2, "patience": 2, "learning_rate": 1e-30, "metric": "exact"}
    )
    assert train(recipe, tmp_path / "run", quiet=True).step == 6  # 0 % at 2 is the best, 4 and 6 are no better


def test_the_mean_of_the_last_checkpoints_is_their_mean(tmp_path):
    train(changed(training={"average_checkpoints": 3, "metric": "loss"}), tmp_path / "run", quiet=True)
    kept = list_checkpoints(Run(tmp_path / "run"))
    assert [checkpoint.step for checkpoint in kept] == [4, 8, 12]
    parts = [checkpoint.load_tensors("model") for checkpoint in kept]
    averaged = average_parameters(kept)
    for name, tensor in averaged.items():
        torch.testing.assert_close(tensor, sum(part[name].double() for part in parts).div(3).float())
    assert "average of the last 3 checkpoints" in (tmp_path / "run/log").read_text()


def test_training_in_a_thread_works(tmp_path):
    worker = threading.Thread(target=train, args=(TINY, tmp_path / "run"), kwargs={"quiet": True})
    worker.start()
    worker.join()
    assert len(Run(tmp_path / "run").read_metrics()) == 3


@pytest.mark.parametrize("score", ["boxcar", "uniform", "exact", "hard"])
def test_scores_without_a_gradient_train_without_nan_and_it_is_said(score, tmp_path):
    train(changed(model={"score": score}), tmp_path / "run", quiet=True)
    assert all(math.isfinite(line["train_loss"]) for line in Run(tmp_path / "run").read_metrics())
    assert re.search(r"note: score \w+ gives query and keys no gradient", (tmp_path / "run/log").read_text())


def test_the_run_folder_can_be_read_with_less(tmp_path):
    train(TINY, tmp_path / "run", quiet=True)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {
        "log", "metrics.jsonl", "model.safetensors", "recipe.toml", "run.json", "tokenizer.json", "training",
    }  # fmt: skip
    recipe = Run(tmp_path / "run").read_recipe()
    assert recipe["model"] == {"hidden": 12, "embedding": 8, "name": "bahdanau", "dropout": 0.3, "copy": True}
    assert recipe["training"]["steps"] == 12
    card = json.loads((tmp_path / "run/run.json").read_text())
    assert card["best"]["metric"] == "exact"
    assert card["parameters"] == sum(p.numel() for p in regard.load(tmp_path / "run").model.parameters())
    assert not list((tmp_path / "run").rglob("*.pt")) + list((tmp_path / "run").rglob("*unfinished*"))


@pytest.mark.slow
def test_bpe_dropout_resumes_too(tmp_path, monkeypatch):
    pairs = tmp_path / "pairs.tsv"
    words = ["some words", "other words here", "words again", "again some other", "here and there"]
    pairs.write_text("".join(f"{a} {b}\t{b} {a}\n" for a in words for b in words))
    recipe = {
        **changed(data={"train": str(pairs), "corpus": {}}),
        "text": {"source_tokenizer": "bpe", "target_tokenizer": "bpe", "vocab_size": 290, "bpe_dropout": 0.2},
    }
    train(recipe, tmp_path / "whole", quiet=True)
    constant = {**recipe, "training": {**recipe["training"], "schedule": "constant", "warmup_steps": 0}}
    train({**constant, "training": {**constant["training"], "steps": 5}}, tmp_path / "x", quiet=True)
    train(constant, tmp_path / "x", quiet=True)
    train(constant, tmp_path / "y", quiet=True)
    last = list_checkpoints(Run(tmp_path / "y"))[-1].path.name
    assert files_equal(
        tmp_path / f"x/training/{last}/model.safetensors", tmp_path / f"y/training/{last}/model.safetensors"
    )
    assert not files_equal(tmp_path / "whole/model.safetensors", tmp_path / "y/model.safetensors")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of packages that TensorBoard's own reader uses
def test_tensorboard_reads_what_was_found(tmp_path):
    train(changed(training={"tensorboard": True}), tmp_path / "run", quiet=True)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run/tensorboard"))
    events.Reload()
    written = [(event.step, round(event.value, 4)) for event in events.Scalars("valid_loss")]
    assert written == [(line["step"], round(line["valid_loss"], 4)) for line in Run(tmp_path / "run").read_metrics()]


def test_a_recipe_is_a_table(tmp_path, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as outside of tests, where any value may come
    line = r"""^train: expected a recipe such as {"data": {"train": "pairs.tsv"}}, got 'pairs.tsv'$"""
    with pytest.raises(RegardError, match=line):
        train("pairs.tsv", tmp_path / "run")


def test_a_run_does_not_start_from_itself(tmp_path):
    with pytest.raises(RegardError, match=r"run is the run to start from; choose another --out$"):
        train(TINY, tmp_path / "run", base=tmp_path / "run", quiet=True)


def test_the_end_is_explained(tmp_path, capsys):
    recipe = changed(
        training={"steps": 100, "validate_every": 2, "patience": 2, "learning_rate": 1e-30, "metric": "exact"}
    )
    train(recipe, tmp_path / "run")
    train({}, tmp_path / "run")
    said = capsys.readouterr().err
    assert re.search(
        r"\nstopped early after 2 validations without improvement; pass --patience 0 to train all steps\n", said
    )
    assert said.endswith(
        "run is complete: stopped early (6 steps of 100) after 2 validations without improvement; "
        "pass --patience 0 to continue training\n"
    )
    train({"training": {"steps": 8, "patience": 0}}, tmp_path / "run", quiet=True)
    train({}, tmp_path / "run")
    assert capsys.readouterr().err.endswith("run is complete (8 steps); pass a larger --steps to continue training\n")


@pytest.mark.parametrize("fewer", [{"steps": 3}, {"epochs": 0.1}])
def test_a_run_is_not_resumed_for_fewer_steps_than_it_has(fewer, tmp_path):
    train(changed(training={"steps": 4}), tmp_path / "run", quiet=True)
    files = [tmp_path / "run" / name for name in ("recipe.toml", "run.json", "metrics.jsonl")]
    before = [file.read_bytes() for file in files]
    steps = fewer.get("steps", 1)
    line = rf"run: run already has 4 steps, more than the {steps} requested; pass a larger --steps$"
    with pytest.raises(RegardError, match=line):
        train({"training": fewer}, tmp_path / "run", quiet=True)
    assert [file.read_bytes() for file in files] == before


def test_a_default_of_the_model_may_be_given_when_a_run_resumes(tmp_path):
    train(changed(training={"steps": 4}), tmp_path / "run", quiet=True)
    assert train({"model": {"layers": 1}, "training": {"steps": 5}}, tmp_path / "run", quiet=True).step == 5
    line = r"run: cannot resume: run was started with model.layers = 1, got 2; choose another --out$"
    with pytest.raises(RegardError, match=line):
        train({"model": {"layers": 2}}, tmp_path / "run", quiet=True)
    line = r"training.seed = 0, got 1; choose another --out, with --from .*/run to start from its parameters$"
    with pytest.raises(RegardError, match=line):
        train({"training": {"seed": 1}}, tmp_path / "run", quiet=True)
    for size, more in ((1, "and 1 more setting differs"), (2, "and 2 more settings differ")):
        model = dict.fromkeys(("embedding", "hidden")[:size], 31)
        with pytest.raises(RegardError, match=rf", got 31, {more}; choose another --out$"):
            train({"model": {"layers": 2, **model}, "training": {"steps": 5}}, tmp_path / "run", quiet=True)


@pytest.mark.parametrize(
    ("settings", "bytes_a_parameter", "purpose"),
    [
        ({}, 16, "parameters, gradients and optimizer"),
        ({"ema_decay": 0.9}, 20, "parameters, gradients, optimizer and moving average"),
    ],
)
def test_a_model_that_does_not_fit_into_memory_is_refused(tmp_path, monkeypatch, settings, bytes_a_parameter, purpose):
    table = changed(model={"hidden": 2000, "embedding": 1000}, training=settings)
    monkeypatch.setattr(memory, "get_available_memory", lambda device: 10**8)
    with pytest.raises(RegardError) as caught:
        train(table, tmp_path / "run", quiet=True)
    match = re.fullmatch(
        rf"model needs about ([\d.]+) GB for {purpose}; 0.1 GB of memory are available; "
        r"lower model.hidden or model.embedding",
        str(caught.value),
    )
    assert match is not None, str(caught.value)
    with memory.on_meta_device():
        built = build("bahdanau", source_vocab_size=8, target_vocab_size=8, hidden=2000, embedding=1000)
    needed = bytes_a_parameter * sum(parameter.numel() for parameter in built.parameters())
    assert abs(float(match[1]) - needed / 1e9) < 0.06
    assert not (tmp_path / "run").exists()
