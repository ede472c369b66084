from regard.serve.asked import Asked
from regard.serve.families import Translator


def test_a_stream_searches_once(predictors, monkeypatch):
    searched = []
    monkeypatch.setattr("regard.predictor.decode_all", lambda _, pairs, **settings: searched.extend(pairs) or [])
    *beams, (answer,) = Translator(predictors["reverse"], 100).work([Asked(action="stream", text="a b c")])
    assert searched == []  # the beam was the search
    assert len(beams) >= 3
    assert (answer.whole, answer.content["text"]) == (True, "c b a")


def test_a_look_writes_no_longer_target_than_is_allowed(predictors):
    model = predictors["reverse"]
    asked = Asked(action="look", text="a b c d", settings=(("target", None), ("words", False)))
    for most in (3, 1000):
        ((told,),) = Translator(model, most).work([asked])
        expected = model.predict("a b c d", longest=most)
        assert told.content["rows"] == list(expected.target_tokens)
        assert len(told.content["alternatives"]) == len(expected.target_tokens) <= most
    assert len(expected.target_tokens) == 5
