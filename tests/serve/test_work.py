import pytest

from regard.looking.options import TargetLookOptions
from regard.serve.asked import Asked
from regard.serve.work import Work
from regard.tasks.pairs.options import SearchOptions
from regard.tasks.predictor import Request


def asked_to_stream(text, **settings):
    return Asked("stream", Request(text, SearchOptions(**settings)))


def test_a_stream_searches_once(predictors, monkeypatch):
    searched = []
    monkeypatch.setattr(
        "regard.tasks.pairs.predictor.decode_all", lambda _, pairs, **settings: searched.extend(pairs) or []
    )
    *beams, (answer,) = Work(predictors["reverse"], 100).work([asked_to_stream("a b c")])
    assert searched == []  # the beam was the search
    assert len(beams) >= 3
    assert (answer.whole, answer.content["text"]) == (True, "c b a")


def test_a_look_writes_no_longer_target_than_is_allowed(predictors):
    model = predictors["reverse"]
    asked = Asked("look", Request("a b c d", TargetLookOptions(words=False)))
    for most in (3, 1000):
        ((told,),) = Work(model, most).work([asked])
        expected = model.predict("a b c d", longest=most)
        assert told.content["rows"] == list(expected.target_tokens)
        assert len(told.content["alternatives"]) == len(expected.target_tokens) <= most
    assert len(expected.target_tokens) == 5


def stream(model, text, **settings):
    *beams, (answer,) = Work(model, 1000).work([asked_to_stream(text, **settings)])
    return [[tuple(each.values()) for each in told.content["beam"]] for (told,) in beams], answer.content


def test_the_beam_ends_where_the_search_does(predictors):
    model = predictors["reverse"]
    beams, _ = stream(model, "a b c", beam=4, length_penalty=1.0)
    assert [beam[0][0] for beam in beams][:3] == ["c", "c b", "c b a"]
    assert all(len(beam) == 4 for beam in beams)
    expected = model.predict("a b c", beam=4, nbest=4, length_penalty=0.0, longest=1)
    (found,), _ = stream(model, "a b c", beam=4, nbest=4, length_penalty=0.0, longest=1)
    best = {each.text: each.log_probability for each in expected.alternatives}
    assert dict(found)["c"] == pytest.approx(best["c"], abs=1e-5)
