"""A small part of the fuzzer, the same cases each time; `make fuzz` runs many more."""

import random
import time
from itertools import count
from pathlib import Path

import pytest

from tests.fuzz import samples
from tests.fuzz.requests import Case, check, draw_case
from tests.fuzz.runner import CASE_BYTES, Outcomes, TookTooLongError, fuzz, limit_memory, limit_time, run_case
from tests.fuzz.targets import SLOW, TARGETS

CASES, SLOW_CASES = 55, 15  # of each target


@pytest.fixture(scope="module", autouse=True)
def runs(reverse_run, gpt_run, label_runs):
    trained = {"pairs": reverse_run, "text": gpt_run, "label": label_runs["one"], "tag": label_runs["crf"]}
    samples.RUNS.update(trained)
    yield
    samples.SERVER.close()
    samples.start_server.cache_clear()
    for name in trained:
        del samples.RUNS[name]


@pytest.mark.parametrize("name", TARGETS)
def test_broken_input_is_accepted_or_refused(name):
    if name in SLOW:
        samples.get_run("inflection")  # trained before the time of a case is limited
    with limit_memory():
        outcomes = fuzz({name: TARGETS[name]}, SLOW_CASES if name in SLOW else CASES, seed=0)[name]
    assert outcomes.failures == []
    assert outcomes.refused > 0


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in SLOW])
def test_what_is_not_broken_is_accepted(name, monkeypatch, tmp_path):  # else every case could fail at the same place
    for mutate in ("mutate_bytes", "mutate_json", "mutate_tensors", "mutate_toml"):
        monkeypatch.setattr(f"tests.fuzz.targets.{mutate}", lambda rng, content: content)
    outcomes = Outcomes()
    for index in range(12):
        run_case(name, TARGETS[name], 0, index, tmp_path / "case", outcomes)
    assert outcomes.failures == []
    assert outcomes.accepted > 0


def test_a_good_request_is_accepted(monkeypatch):
    lines = ["POST /api/predict HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Content-Length: 13"]
    request = "\r\n".join([*lines, "Connection: close", "", '{"text": "a"}']).encode()
    monkeypatch.setattr("tests.fuzz.targets.draw_case", lambda rng: Case(request))
    outcomes = fuzz({"http": TARGETS["http"]}, 1, seed=0)["http"]
    assert (outcomes.accepted, outcomes.failures) == (1, [])


@pytest.mark.slow
def test_many_requests_are_answered():
    assert fuzz({"http": TARGETS["http"]}, 300, seed=1)["http"].failures == []


def test_a_seed_gives_the_same_requests():
    first, second = ([draw_case(random.Random(seed)) for seed in range(20)] for _ in range(2))
    assert first == second
    assert len({case.request for case in first}) == 20


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b'HTTP/1.1 500 Internal Server Error\r\n\r\n{"error": "a"}',
        b'HTTP/1.1 400 Bad Request\r\n\r\n{"error": "a\\nb"}',
        b'HTTP/1.1 400 Bad Request\r\n\r\n{"detail": "a"}',
    ],
)
def test_a_wrong_answer_is_seen(answer):
    with pytest.raises(AssertionError):
        check(Case(b"GET / HTTP/1.1\r\n\r\n"), answer)


def fail(rng):
    (rng.folder / "input").write_text("broken")
    raise KeyError(rng.random())


def test_a_failure_can_be_repeated(tmp_path):
    lines = []
    outcomes = fuzz({"bad": fail}, 2, 7, first=3, failures=tmp_path, report=lines.append)["bad"]
    assert len(outcomes.failures) == 2
    assert lines[0].startswith("FAILED bad; repeat with --targets bad --seed 7 --first 3 --cases 1\nTraceback")
    assert (tmp_path / "bad-7-3" / "input").read_text() == "broken"
    assert (tmp_path / "bad-7-3" / "traceback.txt").read_text() == outcomes.failures[0]
    again = fuzz({"bad": fail}, 1, 7, first=4)["bad"]
    assert again.failures == outcomes.failures[1:]


def test_a_case_has_limits():
    with pytest.raises(TookTooLongError), limit_time(0.01):
        time.sleep(60)
    with pytest.raises(TookTooLongError), limit_time(0.01):
        all(number > 0 for number in count(1))
    if Path("/proc/self/statm").exists():
        with limit_memory(), pytest.raises(MemoryError):
            bytearray(2 * CASE_BYTES)
