import pytest

from regard.maps.options import TargetLookOptions
from regard.serve.handler import PredictorHandler
from regard.serve.messages import ServerRequest
from regard.tasks.pairs.options import SearchOptions
from regard.tasks.predictor import Request


def stream_request(text, **settings):
    return ServerRequest("stream", Request(text, SearchOptions(**settings)))


def test_a_stream_searches_once(predictors, monkeypatch):
    searched = []
    monkeypatch.setattr(
        "regard.tasks.pairs.predictor.decode_all", lambda _, pairs, **settings: searched.extend(pairs) or []
    )
    *beams, (answer,) = PredictorHandler(predictors["reverse"], 100).handle([stream_request("a b c")])
    assert searched == []  # the beam was the search
    assert len(beams) >= 3
    assert (answer.final, answer.content["text"]) == (True, "c b a")


def test_a_look_writes_no_longer_target_than_is_allowed(predictors):
    model = predictors["reverse"]
    request = ServerRequest("look", Request("a b c d", TargetLookOptions(words=False)))
    for most in (3, 1000):
        ((event,),) = PredictorHandler(model, most).handle([request])
        expected = model.predict("a b c d", max_length=most)
        assert event.content["rows"] == list(expected.target_tokens)
        assert len(event.content["alternatives"]) == len(expected.target_tokens) <= most
    assert len(expected.target_tokens) == 5


def stream(model, text, **settings):
    *beams, (answer,) = PredictorHandler(model, 1000).handle([stream_request(text, **settings)])
    return [[tuple(each.values()) for each in event.content["beam"]] for (event,) in beams], answer.content


def test_the_beam_ends_where_the_search_does(predictors):
    model = predictors["reverse"]
    beams, _ = stream(model, "a b c", beam=4, length_penalty=1.0)
    assert [beam[0][0] for beam in beams][:3] == ["c", "c b", "c b a"]
    assert all(len(beam) == 4 for beam in beams)
    expected = model.predict("a b c", beam=4, nbest=4, length_penalty=0.0, max_length=1)
    (beam,), _ = stream(model, "a b c", beam=4, nbest=4, length_penalty=0.0, max_length=1)
    best = {each.text: each.log_probability for each in expected.alternatives}
    assert dict(beam)["c"] == pytest.approx(best["c"], abs=1e-5)
