"""Many clients at once: no answer is lost or sent to the wrong client."""

import random
import threading

import pytest

from tests.serve.running import in_process

CLIENTS, EACH = 50, 10
LETTERS = "abcd"
TEXTS = [f"{one} {other}" for one in LETTERS for other in LETTERS]


def expected_answers(predictors):
    """Requests, a field of the answer, and its value when the model is called directly."""
    expected = []
    for prediction in predictors["reverse"].predict(TEXTS, beam=1):
        expected.append(({"model": "reverse", "text": prediction.source, "beam": 1}, "text", prediction.text))
    for text, tagging in zip(TEXTS, predictors["tag"].predict(TEXTS), strict=True):
        expected.append(({"model": "tag", "text": text}, "tags", list(tagging.tags)))
    for seed, text in enumerate(TEXTS):
        written = predictors["gpt"].generate(text, seed=seed, max_tokens=3).text
        expected.append(({"model": "gpt", "text": text, "seed": seed, "max_tokens": 3}, "text", written))
    return expected


@pytest.mark.slow
def test_every_client_gets_its_own_answers(predictors, reverse_run, gpt_run, hardly_trained):
    expected = expected_answers(predictors)
    statuses, wrong = [], []

    def ask(number):
        draw = random.Random(number)
        for body, field, right in draw.choices(expected, k=EACH):
            answer = client.ask("/api/predict", body)
            statuses.append(answer.status)
            if answer.json.get(field) != right:
                wrong.append((body, answer.json, right))

    with in_process(reverse_run, gpt_run, hardly_trained["tag"]) as process:
        client = process.client
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        logged = process.end()
    assert wrong == []
    assert statuses == [200] * (CLIENTS * EACH)
    assert len(logged) == CLIENTS * EACH + 2  # it listens, and stops
    assert max(each.get("batch_size", 1) for each in logged) > 1  # some shared a batch
