"""Random requests, each of which must get a proper answer; `tests.fuzz_http.run` sends more of them."""

import random

import pytest

from tests.fuzz_http import LIMITS, Case, check, draw_case, fuzz
from tests.serve.running import running


@pytest.mark.slow
def test_random_requests_are_answered(models):
    with running(models, **LIMITS) as client:
        fuzz(client.port, 300, seed=0)
    assert [each for each in client.logged if each["event"] == "bug"] == []


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
