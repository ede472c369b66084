import time
from pathlib import Path

import pytest

from regard import RegardError
from regard.serve.asked import Asked
from regard.serve.served import named, names_of, serve_runs, served
from regard.serve.settings import ServeSettings
from regard.tasks.pairs.options import SearchOptions
from regard.tasks.predictor import Request


def test_runs_are_called_by_their_folders():
    assert names_of([Path("runs/a"), Path("runs/b/")]) == {"a": Path("runs/a"), "b": Path("runs/b")}


def test_runs_whose_folders_are_called_alike_are_called_by_their_paths():
    found = names_of([Path("one/a"), Path("two/a"), Path("b")])
    assert list(found) == ["one/a", "two/a", "b"]


def test_a_run_is_given_once():
    with pytest.raises(RegardError) as caught:
        names_of([Path("a"), Path("./a")])
    assert str(caught.value) == "a: is given twice; give each run once"


def test_the_first_model_is_asked_unless_told_otherwise(models):
    assert named(models, None).name == "reverse"
    assert named(models, "gpt").name == "gpt"
    with pytest.raises(RegardError) as caught:
        named(models, "gtp")
    assert str(caught.value) == 'model: there is no "gtp"; did you mean "gpt"?'


def test_a_run_is_loaded_and_waits(reverse_run):
    (model,) = serve_runs([reverse_run], "cpu", ServeSettings(queue=7, batch=3)).values()
    assert (model.name, model.worker.places, model.worker.batch, model.worker.is_alive()) == ("reverse", 7, 3, True)
    parameters = sum(each.numel() for each in model.predictor.model.parameters())
    assert model.record() == {
        "name": "reverse",
        "kind": "pairs",
        "does": "answers texts",
        "preset": "bahdanau",
        "summary": "words to words",
        "parameters": parameters,
        "attention": ["cross"],
        "options": ["beam", "length_penalty", "longest", "nbest"],
        "defaults": {"beam": 5, "length_penalty": 1.0},
    }
    model.worker.stop(5)
    assert not model.worker.is_alive()


def test_a_model_works_no_longer_for_somebody_who_has_left(predictors):
    model = served("plain", predictors["plain"], ServeSettings(most_tokens=10**9))
    endless = Asked("predict", Request("ab", SearchOptions(length_penalty=100.0, longest=100_000)))
    place = model.worker.join_queue(endless, lambda _: None)
    while model.worker.current is None:
        time.sleep(0.01)
    model.worker.leave(place)
    model.worker.stop(10)
    assert not model.worker.is_alive()


def test_a_long_source_gets_no_longer_target_than_is_allowed(predictors):
    model = served("plain", predictors["plain"], ServeSettings(most_tokens=60))
    told = []
    for text in ("ab" * 3, "ab" * 2):  # twice a source, <eos> counted, and 50 are 64 and 60
        asked = Asked("predict", Request(text, SearchOptions()))
        model.worker.join_queue(asked, told.append)
        assert model.worker.worked.key(asked) == SearchOptions(longest=60 if len(text) > 4 else None)
    model.worker.stop(10)
    assert [each.content["kind"] for each in told] == ["pairs", "pairs"]
