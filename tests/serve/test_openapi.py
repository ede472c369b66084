"""Schemathesis sends requests that the OpenAPI schema allows, and ones that it does not."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.serve.running import JSON

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
CHECKS = (
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
)

OPERATIONS = [("GET", path) for path in ("/health", "/ready", "/metrics", "/api/models")] + [
    ("POST", f"/api/{name}") for name in ("predict", "look", "stream")
]
FEW = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


def test_the_description_has_every_address(client):
    schema = client.ask("/openapi.json").json
    assert {(method.upper(), path) for path, methods in schema["paths"].items() for method in methods} == set(
        OPERATIONS
    )


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # Schemathesis does, now and then
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_nothing_that_can_be_sent_makes_the_server_err(client, models, method, path, mode):
    if (method, mode) == ("GET", "negative"):
        pytest.skip("there is nothing to send")
    schema = schemathesis.openapi.from_dict(client.ask("/openapi.json").json)

    cases = schema[path][method].as_strategy(generation_mode=getattr(schemathesis.GenerationMode, mode.upper()))

    @FEW
    @given(case=cases, model=st.sampled_from([None, *models]))
    def ask(case, model):
        if isinstance(case.body, dict) and model is not None:
            case.body["model"] = model
        case.call_and_validate(base_url=client.address, checks=CHECKS)

    ask()


@FEW
@given(body=st.binary(max_size=200), kind=st.sampled_from([*JSON.values(), "text/plain", "a/b; c"]))
def test_any_bytes_are_answered(client, body, kind):
    for path in ("/api/predict", "/api/look"):
        assert 400 <= client.ask(path, body, "POST", Content_Type=kind).status < 500
