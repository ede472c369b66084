import json
import socket
import threading

import pytest

from regard import __version__
from regard.serve import app
from regard.serve.batching import Worker
from regard.serve.handler import PredictorHandler
from regard.serve.served_models import ModelPool, ServedModel
from regard.serve.settings import ServeSettings
from regard.tasks.tag.predictor import Tagging
from regard.views.attention_map import AttentionMap
from tests.serve.running import running

HOSTILE = [
    ("deep", b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", (400, 422)),
    ("bytes", b'{"text": "\xff\xfe"}', (400,)),
    ("no-json", b"{", (422,)),
    ("empty", b"", (422,)),
    ("digits", b'{"text": "a", "beam": ' + b"9" * 5000 + b"}", (400, 422)),
    ("infinite", b'{"text": "a", "length_penalty": 1e999}', (422,)),
    ("nan", b'{"text": "a", "length_penalty": NaN}', (422,)),
    ("surrogate", b'{"text": "\\ud800"}', (422,)),
    ("list", b"[]", (422,)),
    ("null", b"null", (422,)),
    ("number", b'{"text": 5}', (422,)),
    ("unknown", b'{"text": "a", "bean": 5}', (422,)),
    ("duplicate", b'{"text": "a", "text": 5}', (422,)),
]


def test_health(client):
    answer = client.ask("/health")
    assert (answer.status, answer.json) == (200, {"status": "ok", "version": __version__})


def test_it_is_ready_when_all_models_are_loaded(models, gpt_run):
    pool = ModelPool({"reverse": models["reverse"]}, {"gpt": gpt_run})
    line = "the server is loading its models (1 of 2 loaded); retry later"
    with running(pool) as client:
        for path, body in (("/ready", None), ("/api/models", None), ("/api/predict", {"text": "a"})):
            answer = client.ask(path, body)
            assert (answer.status, answer.error, answer.headers["retry-after"]) == (503, line, "1")
        assert client.ask("/health").status == 200
        assert client.ask("/").status == 200
        pool.load("cpu", ServeSettings())
        answer = client.ask("/ready")
        assert (answer.status, answer.json) == (200, {"status": "ready", "models": ["reverse", "gpt"]})
        assert client.ask("/api/predict", {"text": "a b"}).json["text"] == "b a"
    pool.models["gpt"].worker.stop(5)


class Crash(BaseException):
    """No Exception, so no step of a worker survives it."""


class Crashing(PredictorHandler):
    def handle(self, requests):
        raise Crash
        yield


def test_it_is_not_ready_when_a_worker_has_died(models):
    predictor = models["tag"].predictor
    worker = Worker(Crashing(predictor, 10), name="tag", capacity=9, batch=9)
    worker.start()
    line = 'model "tag" has stopped after an internal error; see the server log'
    with running({"reverse": models["reverse"], "tag": ServedModel("tag", predictor, worker)}) as client:
        assert client.ask("/ready").status == 200
        answer = client.ask("/api/predict", {"model": "tag", "text": "a"})
        assert (answer.status, answer.error) == (500, "internal server error; see the server log")
        worker.join(10)
        for path, body in (("/ready", None), ("/api/predict", {"model": "tag", "text": "a"})):
            answer = client.ask(path, body)
            assert (answer.status, answer.error) == (503, line)
        assert client.ask("/api/predict", {"text": "a b"}).json["text"] == "b a"  # the other model still answers
        assert client.ask("/health").status == 200
    assert [each["error"] for each in client.logged if each["event"] == "bug"] == ["Crash"]


def test_models_are_told_with_what_they_take(client):
    answer = client.ask("/api/models").json
    kinds = {model["name"]: (model["kind"], model["attention"]) for model in answer["models"]}
    assert kinds == {
        "reverse": ("pairs", ["cross"]),
        "transformer": ("pairs", ["cross", "encoder", "decoder"]),
        "plain": ("pairs", []),
        "gpt": ("text", ["self"]),
        "text": ("text", []),
        "label": ("label", ["pooling"]),
        "label-pairs": ("label", ["pooling"]),
        "tag": ("tag", ["self"]),
    }
    taken = {model["name"]: (model["options"], model["summary"]) for model in answer["models"]}
    assert taken["label"] == (["nbest"], "2 labels")
    assert taken["label-pairs"] == (["nbest", "second"], "2 labels")
    assert taken["tag"] == ([], "2 tags")
    assert answer["limits"] == {
        "max_bytes": 1000000,
        "max_characters": 10000,
        "max_beam": 32,
        "max_tokens": 1000,
        "timeout": 30.0,
    }


def test_a_translator_answers_as_it_does_in_python(client, predictors):
    expected = predictors["reverse"].predict("a b c", nbest=3, beam=4)
    answer = client.ask("/api/predict", {"text": "a b c", "nbest": 3, "beam": 4})
    assert answer.status == 200
    assert answer.json["model"] == "reverse"  # the first
    assert answer.json["text"] == expected.text == "c b a"
    assert answer.json["target_tokens"] == list(expected.target_tokens)
    assert [each["text"] for each in answer.json["alternatives"]] == [each.text for each in expected.alternatives]
    logs = [each["log_probability"] for each in answer.json["alternatives"]]
    assert logs == pytest.approx([each.log_probability for each in expected.alternatives], abs=1e-5)


def test_a_language_model_draws_the_text_of_its_seed(client, predictors):
    expected = predictors["gpt"].generate("the ", max_tokens=9, seed=5, temperature=0.8)
    answer = client.ask(
        "/api/predict", {"model": "gpt", "text": "the ", "max_tokens": 9, "seed": 5, "temperature": 0.8}
    )
    assert answer.json["text"] == expected.text
    assert answer.json["tokens"] == list(expected.tokens)
    assert answer.json["ended"] == expected.ended
    assert answer.json["log_probability"] == pytest.approx(expected.log_probability, abs=1e-4)


def test_a_language_model_gives_its_most_probable_texts(client, predictors):
    expected = predictors["text"].continuations("the cat", max_tokens=4, beam=3, nbest=2)
    answer = client.ask("/api/predict", {"model": "text", "text": "the cat", "max_tokens": 4, "beam": 3, "nbest": 2})
    assert [each["text"] for each in answer.json["alternatives"]] == [each.text for each in expected]


def test_labels(client, predictors):
    expected = predictors["label"].predict("who is Ann", nbest=2)
    answer = client.ask("/api/predict", {"model": "label", "text": "who is Ann", "nbest": 2}).json
    assert answer["labels"] == list(expected.labels)
    assert [(each["label"]) for each in answer["ranked"]] == [each.label for each in expected.ranked]
    assert answer["words"] == ["who", "is", "Ann"]
    pair = {"model": "label-pairs", "text": "who", "second": "she"}
    expected = predictors["label-pairs"].predict("who", second="she")
    assert client.ask("/api/predict", pair).json["labels"] == list(expected.labels)


def test_tags(client, predictors):
    expected = predictors["tag"].predict("Ann sees Bob")
    answer = client.ask("/api/predict", {"model": "tag", "text": "Ann sees Bob"}).json
    assert (answer["words"], answer["tags"]) == (["Ann", "sees", "Bob"], list(expected.tags))
    assert answer["probabilities"] == pytest.approx(expected.probabilities)
    spans = [(span["type"], span["first"], span["last"]) for span in answer["spans"]]
    assert spans == [tuple(span) for span in expected.spans]


def test_a_look_is_an_attention_map(client, predictors):
    model = predictors["reverse"]
    expected = model.attention_map(model.predict("a b c", return_weights=True))
    answer = AttentionMap.from_record(client.ask("/api/look", {"text": "a b c", "words": False}).json)
    assert (answer.rows, answer.columns) == (("c", "b", "a", "<eos>"), ("a", "b", "c", "<eos>"))
    assert answer.weights == pytest.approx(expected.weights, abs=1e-5)


def test_a_look_at_a_given_target_and_another_attention(client):
    body = {"model": "transformer", "text": "a b c", "target": "a b"}
    sides = {
        kind: (record["rows"], record["columns"])
        for kind in ("cross", "encoder", "decoder")
        for record in [client.ask("/api/look", {**body, "kind": kind}).json]
    }
    source, target = ["a", "b", "c", "<eos>"], ["a", "b", "<eos>"]
    assert sides == {"cross": (target, source), "encoder": (source, source), "decoder": (target, ["<bos>", "a", "b"])}
    answer = client.ask("/api/look", {"text": "a", "kind": "encoder"})
    assert (answer.status, answer.error) == (
        422,
        'look: bahdanau: unknown kind "encoder"; choose from cross',
    )


@pytest.mark.parametrize("model", ["reverse", "transformer", "gpt", "label", "tag"])
def test_every_kind_can_be_looked_at(client, model):
    answer = client.ask("/api/look", {"model": model, "text": "a b d"})
    assert answer.status == 200
    assert AttentionMap.from_record(answer.json).weights.ndim == 4


def test_a_look_at_the_largest_weights(client):
    whole = AttentionMap.from_record(client.ask("/api/look", {"text": "a b c"}).json)
    top = AttentionMap.from_record(client.ask("/api/look", {"text": "a b c", "top": 1}).json)
    assert top.top_k == 1
    assert top.weights.values[..., 0] == pytest.approx(whole.weights.max(-1))


def test_no_more_weights_are_given_than_a_page_can_hold(client, monkeypatch):
    monkeypatch.setattr("regard.views.page.MOST_WEIGHTS", 20)
    for top, kept in ((10**6, 4), (5, 4), (2, 2)):  # of 25 weights four of each row, unless fewer are body for
        body = {"model": "reverse", "text": "a b c d", "target": "d c b a", "words": False, "top": top}
        (head,) = client.ask("/api/look", body).json["weights"]["values"][0]
        assert [len(row) for row in head] == [kept] * 5


def test_json_is_written_in_parts():
    rows = [[0.25] * 1000] * 50
    content = {"weights": [[rows]], "empty": [{}, []], "texts": ("a", "\ud800"), "pairs": [["a", 0.5], ["b", 1e-9]]}
    parts = list(app.iter_json(content))
    assert "".join(parts) == json.dumps(content)
    assert max(map(len, parts)) == len(json.dumps(rows[0]))
    with pytest.raises(ValueError, match="not JSON compliant"):
        list(app.iter_json([[float("nan")]]))


def test_a_map_is_written_where_nobody_waits_for_it(client, monkeypatch):
    threads, write = [], app.build_json_response

    def noted(*content):
        threads.append(threading.get_ident())
        return write(*content)

    monkeypatch.setattr(app, "build_json_response", noted)
    client.ask("/health")
    client.ask("/api/look", {"text": "a b c"})
    assert len(set(threads)) == 2  # not in the thread that answers all


def test_a_pair_of_texts_is_looked_at(client, predictors):
    body = {"model": "label-pairs", "text": "who is", "second": "she"}
    model = predictors["label-pairs"]
    expected = model.predict("who is", second="she", return_weights=True)
    assert client.ask("/api/look", body).json["weights"][0][0][0] == pytest.approx(expected.weights, abs=1e-6)


def test_a_model_without_attention_says_so(client):
    answer = client.ask("/api/look", {"model": "plain", "text": "a b"})
    assert (answer.status, answer.error) == (
        422,
        "seq2seq has no attention from target to source",
    )


def test_a_translation_grows_by_its_beam(client):
    events = client.ask("/api/stream", {"text": "a b c", "beam": 3}).events
    assert [name for name, _ in events[:-1]] == ["part"] * (len(events) - 1)
    beams = [part["beam"] for _, part in events[:-1]]
    assert beams[0][0]["text"] == "c"
    assert beams[2][0]["text"] == "c b a"
    assert all(len(beam) == 3 for beam in beams)
    logs = [[each["log_probability"] for each in beam] for beam in beams]
    assert logs == [sorted(each, reverse=True) for each in logs]
    assert events[-1] == ("answer", client.ask("/api/predict", {"text": "a b c", "beam": 3}).json)


@pytest.mark.parametrize("max_tokens", [9, 1])
def test_a_text_grows_by_its_tokens(client, max_tokens):
    body = {"model": "gpt", "text": "the ", "max_tokens": max_tokens, "seed": 5}
    *parts, (name, answer) = client.ask("/api/stream", body).events
    assert name == "answer"
    assert answer == client.ask("/api/predict", body).json
    assert len(parts) == max_tokens
    assert answer["text"] == "".join(part["part"] for _, part in parts)


def test_what_does_not_grow_is_answered_at_once(client):
    ((name, answer),) = client.ask("/api/stream", {"model": "tag", "text": "Ann"}).events
    assert (name, answer["words"]) == ("answer", ["Ann"])


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ({"text": "a", "model": "revers"}, 'unknown model "revers"; did you mean "reverse"?'),
        ({}, "text is required"),
        ({"prompt": "a"}, 'unknown field "prompt"; did you mean "text"?'),
        ({"inputs": "a"}, 'unknown field "inputs"; did you mean "text"?'),
        ({"text": "a", "max_new_tokens": 5}, 'unknown field "max_new_tokens"; did you mean "max_tokens"?'),
        ({"text": "a", "bean": 1}, 'unknown field "bean"; did you mean "beam"?'),
        ({"text": "a", "xyz": 1}, 'unknown field "xyz"; see /docs for the API'),
        ({"text": 5}, "text: expected a string, got int"),
        ({"text": None}, "text: expected a string, got null"),
        ([], "request: expected a JSON object, got list"),
        ({"text": "a", "beam": "5"}, "beam: expected an integer, got str"),
        ({"text": "a", "beam": 0}, "beam must be at least 1, got 0"),
        ({"text": "a", "beam": 10**400}, f"beam must be at most 1000, got 1{'0' * 38}…"),
        ({"text": "a", "model": "gpt", "top_p": 2}, "top_p must be at most 1, got 2"),
        ({"text": "a", "model": "gpt", "temperature": 0}, "temperature must be at least 0.001, got 0"),
        ({"text": "a", "beam": 33}, "beam must be at most 32 on this server, got 33"),
        ({"text": "a", "beam": 2, "nbest": 3}, "predict: nbest must be at most beam (2), got 3"),
        ({"text": "a", "max_length": 1001}, "max_length must be at most 1000 on this server, got 1001"),
        ({"text": "a" * 10_001}, "text must be at most 10000 characters long, got 10001"),
        (
            {"text": "a", "seed": 1},
            'model "reverse" does not support "seed"; choose from text, beam, length_penalty, max_length, nbest',
        ),
        (
            {"text": "a", "model": "tag", "beam": 1},
            'model "tag" does not support "beam"; choose from text',
        ),
        ({"text": "a", "model": "gpt", "max_tokens": 1001}, "max_tokens must be at most 1000 on this server, got 1001"),
        (
            {"text": "a", "model": "gpt", "beam": 2, "seed": 1},
            "seed cannot be combined with beam or nbest",
        ),
        (
            {"text": "a", "model": "gpt", "greedy": True, "top_k": 1},
            "generate: greedy cannot be combined with temperature, top_k or top_p",
        ),
        (
            {"text": "a", "model": "label-pairs"},
            'text "a": second is required; this model classifies text pairs',
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(client, body, line):
    answer = client.ask("/api/predict", body)
    assert (answer.status, answer.error) == (422, line)


@pytest.mark.parametrize(("body", "statuses"), [each[1:] for each in HOSTILE], ids=[each[0] for each in HOSTILE])
@pytest.mark.parametrize("path", ["/api/predict", "/api/look", "/api/stream"])
def test_hostile_bodies_are_refused(client, path, body, statuses):
    answer = client.ask(path, body)
    assert answer.status in statuses
    assert answer.error
    assert "\n" not in answer.error


def test_a_large_body_is_refused_before_it_is_read(client):
    answer = client.ask("/api/predict", b'{"text": "' + b"a" * 10_000_000 + b'"}')
    assert (answer.status, answer.error) == (413, "the request must be at most 1000000 bytes")


def test_a_large_body_without_a_length_is_refused(client):
    with socket.create_connection(("127.0.0.1", client.port)) as connection:
        head = "POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        piece = b"8000\r\n" + b"a" * 0x8000 + b"\r\n"
        for _ in range(320):
            connection.sendall(piece)
        connection.sendall(b"0\r\n\r\n")
        connection.settimeout(10)
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("text", ["\x00", "\x1b[31m", "\u202e", "a\r\nb", "\u2028", "😀" * 5, "<script>", " ", ""])
@pytest.mark.parametrize("model", ["reverse", "gpt", "text", "label", "tag"])
def test_any_text_gets_an_answer(client, model, text):
    extra = {"max_tokens": 3, "seed": 0} if model in ("gpt", "text") else {}
    answer = client.ask("/api/predict", {"model": model, "text": text, **extra})
    assert answer.status == 200
    assert client.ask("/api/look", {"model": model, "text": text}).status in (200, 422)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/serve/static/../../cli/__init__.py",
        "/serve/static/..%2f..%2fcli%2f__init__.py",
        "/serve/static//etc/passwd",
        "//etc/passwd",
        "/serve/static/%00",
        "/serve/static/",
        "/views/static/..",
        "/serve/static/index.html%20",
        "/%ff%fe",
    ],
)
def test_no_path_leads_out_of_the_files(client, path):
    answer = client.ask(path)
    assert (answer.status, answer.error) == (404, "not found; see /docs for the API")


def test_another_method_is_refused(client):
    answer = client.ask("/api/predict", method="GET")
    assert (answer.status, answer.error) == (405, "method not allowed; see /docs for the API")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/docs", "text/html; charset=utf-8"),
        ("/openapi.json", "application/json"),
        ("/serve/static/app.js", "text/javascript; charset=utf-8"),
        ("/views/static/viewer.css", "text/css; charset=utf-8"),
        ("/serve/static/icon.svg", "image/svg+xml"),
    ],
)
def test_the_page_comes_from_the_package(client, path, kind):
    answer = client.ask(path)
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    assert b"http://" not in answer.body.replace(b"http://www.w3.org/2000/svg", b"")  # nor from anywhere else
    assert b"https://" not in answer.body


def test_a_browser_keeps_what_has_not_changed(client):
    first = client.ask("/serve/static/app.js")
    again = client.ask("/serve/static/app.js", If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


def test_what_a_model_writes_may_be_no_unicode(models, predictors, monkeypatch):
    monkeypatch.setattr(Tagging, "record", lambda _: {"words": ["\ud800"]})
    with running(models) as client:
        assert client.ask("/api/predict", {"model": "tag", "text": "a"}).json["words"] == ["\ud800"]


def test_a_bug_of_ours_is_told_without_what_it_says(models, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(Tagging, "record", broken)
    with running(models) as client:
        answer = client.ask("/api/predict", {"model": "tag", "text": "private"})
    assert (answer.status, answer.error) == (500, "internal server error; see the server log")
    events = [(each["event"], each.get("error"), each.get("status")) for each in client.logged]
    assert events == [("bug", "ZeroDivisionError", None), ("request", None, 500)]
    assert client.logged[0]["traceback"][-1].endswith(" broken")
    assert "secret" not in str(client.lines)
    assert "private" not in str(client.lines)
