import re

import pytest

from regard import __version__
from regard.serve.metrics import Histogram, format_sample
from tests.serve.running import running

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\})? (\+Inf|[0-9.e+-]+)')


def read(client, **headers):
    """Return the samples by name and labels; every line has the form that Prometheus reads."""
    answer = client.ask("/metrics", **headers)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    samples, described = {}, set()
    for line in answer.body.decode().splitlines():
        if line.startswith("# HELP "):
            described.add(line.split()[2])
        elif not line.startswith("# TYPE "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] in described or re.sub("_(bucket|sum|count)$", "", match[1]) in described
            samples[line.rpartition(" ")[0]] = float(match[3])
    return samples


def test_a_bucket_counts_all_up_to_its_bound():
    histogram = Histogram((1, 2.5))
    for value in (0.5, 1, 2, 7):
        histogram.observe(value)
    histogram.observe(2.5, 2)
    assert list(histogram.iter_samples("x", {"a": "b"})) == [
        'x_bucket{a="b",le="1"} 2',
        'x_bucket{a="b",le="2.5"} 5',
        'x_bucket{a="b",le="+Inf"} 6',
        'x_sum{a="b"} 15.5',
        'x_count{a="b"} 6',
    ]


def test_labels_are_escaped():
    assert format_sample("x", {"a": 'b"\\\n'}, 1) == 'x{a="b\\"\\\\\\n"} 1'
    assert format_sample("x", {}, 0.5) == "x 0.5"


def test_requests_are_counted_by_route_and_status(models):
    with running(models) as client:
        client.ask("/api/predict", {"text": "a b"})
        client.ask("/api/predict", {"text": "a b"})
        client.ask("/api/predict", {"text": 5})
        client.ask("/nothing/secret")
        client.ask("/health", Host="evil.example")
        samples = read(client)
    expected = {("/api/predict", 200): 2, ("/api/predict", 422): 1, ("other", 404): 1, ("/health", 421): 1}
    for (route, status), count in expected.items():
        assert samples[f'regard_requests_total{{route="{route}",status="{status}"}}'] == count
    assert sum(count for name, count in samples.items() if name.startswith("regard_requests_total")) == 5
    assert samples['regard_request_seconds_count{route="/api/predict"}'] == 3
    assert samples['regard_request_seconds_bucket{route="/api/predict",le="+Inf"}'] == 3
    assert samples["regard_requests_in_flight"] == samples["regard_connections"] == 1  # this one
    assert samples[f'regard_info{{version="{__version__}"}}'] == 1
    assert samples["process_resident_memory_bytes"] > 50_000_000  # torch alone is more


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"model": "reverse", "text": "a b c"}, 4),  # c b a <eos>
        ({"model": "gpt", "text": "the ", "max_tokens": 7, "seed": 1}, 7),
        ({"model": "tag", "text": "a b c"}, 0),
    ],
)
def test_batches_and_tokens_are_counted_by_model(models, body, tokens):
    with running(models) as client:
        before = read(client)
        client.ask("/api/predict", body)
        client.ask("/api/stream", body)
        after = read(client)
    model = body["model"]
    grown = {
        name: after[f'{name}{{model="{model}"}}'] - before[f'{name}{{model="{model}"}}']
        for name in ("regard_tokens_total", "regard_batch_size_sum", "regard_batch_size_count")
    }
    assert grown == {"regard_tokens_total": 2 * tokens, "regard_batch_size_sum": 2, "regard_batch_size_count": 2}
    assert after[f'regard_model_ready{{model="{model}"}}'] == 1
    assert after[f'regard_queue_length{{model="{model}"}}'] == 0
