"""No request that is generated from the OpenAPI document causes an internal error.

TPUSERVE_SCHEMATHESIS is the number of valid requests, and of invalid ones, to each path
that takes a body.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from starlette.types import ASGIApp

from server.admission.admission import AdmissionController
from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.frontends.rest.transport.server import RestServer
from server.metrics import Metrics
from server.models.manager import Manager
from server.process import ports
from server.servables.servable import Array, Model
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeModel
from tests.server.frontends.rest.v1.test_classify_regress import CountingModel, definition
from tests.server.frontends.rest.wire import Address, ask
from tpuserve.errors import InvalidTensor
from tpuserve.saved_model.signature import Signature

pytestmark = pytest.mark.slow

REQUESTS = int(os.environ.get("TPUSERVE_SCHEMATHESIS", "10"))
PREDICT = "/v1/models/half:predict"
OPERATIONS = {
    *("GET /v1/models", "GET /healthz", "GET /readyz", "GET /metrics"),
    *("GET /v1/models/half", "GET /v1/models/half/metadata", f"POST {PREDICT}"),
    *("GET /v1/models/counting", "GET /v1/models/counting/metadata"),
    *("GET /v1/models/half/statistics", "GET /v1/models/counting/statistics"),
    *(f"POST /v1/models/counting:{verb}" for verb in ("predict", "classify", "regress")),
    *("GET /v2", "GET /v2/health/live", "GET /v2/health/ready", "GET /v2/models/stats"),
    *("POST /v2/repository/index", "POST /v2/models/half/infer", "POST /v2/models/counting/infer"),
    *(f"GET /v2/models/{model}" for model in ("half", "counting")),
    *(f"GET /v2/models/half/{name}" for name in ("ready", "config", "stats")),
    *(f"GET /v2/models/counting/{name}" for name in ("ready", "config", "stats")),
}
# Operations and kinds of requests to generate. An operation without a body has no invalid requests.
TURNS = [
    *((label, GenerationMode.POSITIVE) for label in sorted(OPERATIONS)),
    *((label, GenerationMode.NEGATIVE) for label in sorted(OPERATIONS) if "POST" in label),
]


class HalfModel(FakeModel):
    """Half-plus-two and similar signatures, with their SignatureDef messages."""

    signatures: Mapping[str, Signature] = {
        name: FakeModel.signatures[name] for name in ("serving_default", "ratio", "echo")
    }
    signature_defs: Mapping[str, Any] = {
        name: definition(signature) for name, signature in signatures.items()
    }

    def run(self, *args: Any, **named: Any) -> dict[str, Array]:
        # Ignore NumPy's warnings: TensorFlow computes the same without warnings.
        with np.errstate(all="ignore"):
            return super().run(*args, **named)


class StrictModel(CountingModel):
    """Returns the length of each example in a list; refuses other shapes, as TensorFlow does."""

    def run(self, signature_name: str, inputs: Any, *args: Any, **named: Any) -> dict[str, Array]:
        if inputs["inputs"].ndim != 1:
            raise InvalidTensor("Expected serialized to be a vector")
        return super().run(signature_name, inputs, *args, **named)


def load_model(directory: Path) -> Model:
    return StrictModel() if directory.parent.name == "counting" else HalfModel()


def application() -> ASGIApp:
    manager = Manager(load_model)
    for name in ("half", "counting"):
        aspire(manager, name, {1: Path("/models") / name / "1"})
    metrics, admission = Metrics(), AdmissionController(100)
    admission.mark_ready()
    return build_rest_app(DataPlane(manager, metrics=metrics), metrics=metrics, admission=admission)


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    with ports.bind_port("127.0.0.1", 0, "--rest_api_port") as listener:
        server = RestServer(application(), listener, 5, pytest.fail)
        server.start()
        yield listener.getsockname()
        server.stop()
        server.join()


@pytest.fixture(scope="module")
def operations(address: Address) -> dict[str, Any]:
    url = "http://{}:{}/openapi.json".format(*address)
    schema: Any = schemathesis.openapi.from_url(url)
    operations = [result.ok() for result in schema.get_all_operations()]
    return {operation.label: operation for operation in operations}


def test_every_operation_is_described(operations: dict[str, Any]) -> None:
    assert set(operations) == OPERATIONS


@pytest.mark.parametrize(("label", "mode"), TURNS)
def test_no_request_causes_an_internal_error(
    address: Address, operations: dict[str, Any], label: str, mode: Any
) -> None:
    num_requests = 0

    @settings(
        max_examples=REQUESTS,
        deadline=None,
        database=None,
        # By default, generate the same requests in each run.
        derandomize="TPUSERVE_SCHEMATHESIS" not in os.environ,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        nonlocal num_requests
        num_requests += 1
        case = data.draw(operations[label].as_strategy(generation_mode=mode))
        case.call_and_validate(checks=[not_a_server_error], timeout=30)

    check()
    print(f"{num_requests} requests to {label}, {mode.value}")
    assert num_requests >= (REQUESTS if "POST" in label else 1)
    reply, body = ask(address, "POST", PREDICT, b'{"instances": [1.0, 2.0, 5.0]}')
    assert reply.status == 200
    assert b"[2.5, 3.0, 4.5" in body
