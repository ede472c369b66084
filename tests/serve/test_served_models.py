import shutil
import time
from pathlib import Path

import pytest

from regard import RegardError
from regard.serve.messages import ServerRequest
from regard.serve.security import RequestError
from regard.serve.served_models import ModelPool, name_runs, start_model
from regard.serve.settings import ServeSettings
from regard.tasks.pairs.options import SearchOptions
from regard.tasks.predictor import Request


def test_runs_are_called_by_their_folders():
    assert name_runs([Path("runs/a"), Path("runs/b/")]) == {"a": Path("runs/a"), "b": Path("runs/b")}


def test_runs_whose_folders_are_called_alike_are_called_by_their_paths():
    runs = name_runs([Path("one/a"), Path("two/a"), Path("b")])
    assert list(runs) == ["one/a", "two/a", "b"]


def test_a_run_is_given_once():
    with pytest.raises(RegardError) as caught:
        name_runs([Path("a"), Path("./a")])
    assert str(caught.value) == "a is listed twice"


def test_the_first_model_is_asked_unless_told_otherwise(models):
    pool = ModelPool(models)
    assert pool.find(None).name == "reverse"
    assert pool.find("gpt").name == "gpt"
    with pytest.raises(RegardError) as caught:
        pool.find("gtp")
    assert str(caught.value) == 'unknown model "gtp"; did you mean "gpt"?'


def test_nothing_is_asked_before_all_is_loaded(models, gpt_run):
    pool = ModelPool({"reverse": models["reverse"]}, {"gpt": gpt_run})
    line = "the server is loading its models (1 of 2 loaded); retry later"
    assert pool.find_problem() == line
    with pytest.raises(RequestError) as caught:
        pool.find("reverse")
    assert (caught.value.status, caught.value.line) == (503, line)
    pool.load("cpu", ServeSettings())
    assert pool.find_problem() is None
    assert pool.find("gpt").worker.is_alive()
    pool.models["gpt"].worker.stop(5)


def test_a_run_folder_that_is_gone_is_told(reverse_run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(reverse_run, copy)
    pool = ModelPool(runs={"copy": copy})
    pool.load("cpu", ServeSettings())
    assert pool.find_problem() is None
    copy.rename(tmp_path / "elsewhere")
    assert pool.find_problem() == 'the run folder of model "copy" is missing or incomplete'
    assert pool.find("copy").name == "copy"  # it still answers from memory
    pool.stop(5)
    line = 'model "copy" has stopped after an internal error; see the server log'
    assert pool.find_problem() == line
    with pytest.raises(RequestError) as caught:
        pool.find("copy")
    assert (caught.value.status, caught.value.line) == (503, line)


def test_a_model_under_its_next_name_is_there(reverse_run, tmp_path):
    """As after a crash between the card and the name of the model."""
    run = tmp_path / "run"
    shutil.copytree(reverse_run, run)
    (run / "model.safetensors").rename(run / "model.safetensors.next")
    pool = ModelPool(runs={"run": run})
    pool.load("cpu", ServeSettings())
    assert pool.find_problem() is None
    (run / "model.safetensors.next").unlink()
    assert pool.find_problem() == 'the run folder of model "run" is missing or incomplete'
    pool.stop(5)


def test_a_run_is_loaded_and_waits(reverse_run):
    pool = ModelPool(runs=name_runs([reverse_run]))
    pool.load("cpu", ServeSettings(queue_size=7, batch_size=3))
    (model,) = pool.models.values()
    assert (model.name, model.worker.capacity, model.worker.batch, model.worker.is_alive()) == ("reverse", 7, 3, True)
    parameters = sum(each.numel() for each in model.predictor.model.parameters())
    assert model.record() == {
        "name": "reverse",
        "kind": "pairs",
        "description": "sequence-to-sequence model",
        "preset": "bahdanau",
        "summary": "words to words",
        "parameters": parameters,
        "attention": ["cross"],
        "options": ["beam", "length_penalty", "max_length", "nbest"],
        "defaults": {"beam": 5, "length_penalty": 1.0},
    }
    model.worker.stop(5)
    assert not model.worker.is_alive()


def test_a_model_works_no_longer_for_somebody_who_has_left(predictors):
    model = start_model("plain", predictors["plain"], ServeSettings(max_tokens=10**6))
    endless = ServerRequest("predict", Request("ab", SearchOptions(length_penalty=100.0, max_length=100_000)))
    place = model.worker.submit(endless, lambda _: None)
    while model.worker.current is None:
        time.sleep(0.01)
    model.worker.cancel(place)
    model.worker.stop(10)
    assert not model.worker.is_alive()


def test_a_long_source_gets_no_longer_target_than_is_allowed(predictors):
    model = start_model("plain", predictors["plain"], ServeSettings(max_tokens=60))
    events = []
    for text in ("ab" * 3, "ab" * 2):  # twice a source, <eos> counted, and 50 are 64 and 60
        request = ServerRequest("predict", Request(text, SearchOptions()))
        model.worker.submit(request, events.append)
        assert model.worker.handler.batch_key(request) == SearchOptions(max_length=60 if len(text) > 4 else None)
    model.worker.stop(10)
    assert [event.content["kind"] for event in events] == ["pairs", "pairs"]
