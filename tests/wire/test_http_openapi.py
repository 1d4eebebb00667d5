"""What the OpenAPI document says is what a running broker answers: thousands of requests made from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from broker.http.api.application import build
from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker

pytestmark = pytest.mark.wire

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 8


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with something in it to be found."""
    broker = RunningBroker(tmp_path_factory.mktemp("openapi"), "", "", ())
    api = Api(broker)
    for number in range(3):
        api.post("/queues", {"name": f"q{number}", "arguments": {"max_count": 100}}, 201)
    api.post("/topics", {"name": "t"}, 201)
    api.post("/bindings", {"source": "t", "target": "q0"}, 201)
    api.post("/bridges", {"from": "q1", "to": "q2"}, 201)
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


DOCUMENT = build().openapi()
# Its answer never ends.
OPERATIONS = [
    (path, verb) for path, verbs in DOCUMENT["paths"].items() for verb in verbs if path != "/api/v1/live"
]


@pytest.mark.parametrize(("path", "verb"), OPERATIONS)
def test_answers_are_as_the_document_says(served: RunningBroker, path: str, verb: str) -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.config.update(base_url=f"http://127.0.0.1:{served.http_port}")

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][verb].as_strategy(), known=st.sampled_from((None, "q0", "t")))
    def answers_well(case: schemathesis.Case[Any], known: str | None) -> None:
        # Names made up are those of nothing.
        for parameter in ("name", "address"):
            if known is not None and parameter in case.path_parameters:
                case.path_parameters[parameter] = known
        statuses.add(case.call_and_validate(checks=CHECKS).status_code)

    statuses: set[int] = set()
    answers_well()
    assert statuses & {200, 201, 204, 400, 404}


def test_an_answer_that_is_not_as_it_says_would_be_noticed(served: RunningBroker) -> None:
    wrong = json.loads(json.dumps(DOCUMENT))
    wrong["components"]["schemas"]["Broker"]["properties"]["pid"]["type"] = "string"
    schema = schemathesis.openapi.from_dict(wrong)
    schema.config.update(base_url=f"http://127.0.0.1:{served.http_port}")
    case = schema["/api/v1/broker"]["get"].Case()
    with pytest.raises(FailureGroup, match=r"pid|string"):
        case.call_and_validate(checks=CHECKS)


def test_the_document_is_openapi_3_1_and_complete(served: RunningBroker) -> None:
    found = Api(served).get("/openapi.json")
    assert found == json.loads(json.dumps(DOCUMENT))
    assert found["openapi"].startswith("3.1.")
    operations = [
        (path, verb, each) for path, verbs in found["paths"].items() for verb, each in verbs.items()
    ]
    assert len(operations) >= 45
    ids = [each["operationId"] for _, _, each in operations]
    assert len(set(ids)) == len(ids)
    for path, verb, each in operations:
        assert each["summary"], (path, verb)
        assert path.startswith("/api/v1/")
        assert "422" not in each["responses"] or "Refusal" in json.dumps(each["responses"]["422"])
