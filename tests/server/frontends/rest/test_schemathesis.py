"""Requests made of our own OpenAPI document, right ones and wrong ones, find no fault.

TPUSERVE_SCHEMATHESIS is the number of right requests and of wrong ones to each of the four paths
that take a body.
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
from tests.server.aspiring import aspire
from tests.server.fakes import FakeModel
from tests.server.frontends.rest.v1.test_classify_regress import CountingModel, definition
from tests.server.frontends.rest.wire import Address, ask
from tpuserve.errors import InvalidTensor
from tpuserve.saved_model.signature import Signature

pytestmark = pytest.mark.slow

REQUESTS = int(os.environ.get("TPUSERVE_SCHEMATHESIS", "10"))
PREDICT = "/v1/models/half:predict"
OPERATIONS = {
    *("GET /v1/models", "GET /healthz", "GET /readyz"),
    *("GET /v1/models/half", "GET /v1/models/half/metadata", f"POST {PREDICT}"),
    *("GET /v1/models/counting", "GET /v1/models/counting/metadata"),
    *(f"POST /v1/models/counting:{verb}" for verb in ("predict", "classify", "regress")),
}
# A request without a body can be made in one way, and in no wrong one.
TURNS = [
    *((label, GenerationMode.POSITIVE) for label in sorted(OPERATIONS)),
    *((label, GenerationMode.NEGATIVE) for label in sorted(OPERATIONS) if "POST" in label),
]


class HalfModel(FakeModel):
    """Half-plus-two and its kin, as messages too."""

    signatures: Mapping[str, Signature] = {
        name: FakeModel.signatures[name] for name in ("serving_default", "ratio", "echo")
    }
    signature_defs: Mapping[str, Any] = {
        name: definition(each) for name, each in signatures.items()
    }

    def run(self, *args: Any, **named: Any) -> dict[str, Array]:
        # What numpy warns of, TensorFlow computes without a word.
        with np.errstate(all="ignore"):
            return super().run(*args, **named)


class StrictModel(CountingModel):
    """The lengths of examples, of a list of them alone, as a graph that parses them has it."""

    def run(self, signature_name: str, inputs: Any, *args: Any, **named: Any) -> dict[str, Array]:
        if inputs["inputs"].ndim != 1:
            raise InvalidTensor("Expected serialized to be a vector")
        return super().run(signature_name, inputs, *args, **named)


def load(directory: Path) -> Model:
    return StrictModel() if directory.parent.name == "counting" else HalfModel()


def application() -> ASGIApp:
    manager = Manager(load)
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
    return {each.ok().label: each.ok() for each in schema.get_all_operations()}


def test_every_operation_is_described(operations: dict[str, Any]) -> None:
    assert set(operations) == OPERATIONS


@pytest.mark.parametrize(("label", "mode"), TURNS)
def test_no_request_is_too_much(
    address: Address, operations: dict[str, Any], label: str, mode: Any
) -> None:
    made = 0

    @settings(
        max_examples=REQUESTS,
        deadline=None,
        database=None,
        # The same requests each time, unless there are to be many.
        derandomize="TPUSERVE_SCHEMATHESIS" not in os.environ,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        nonlocal made
        made += 1
        case = data.draw(operations[label].as_strategy(generation_mode=mode))
        case.call_and_validate(checks=[not_a_server_error], timeout=30)

    check()
    print(f"{made} requests to {label}, {mode.value}")
    assert made >= (REQUESTS if "POST" in label else 1)
    reply, body = ask(address, "POST", PREDICT, b'{"instances": [1.0, 2.0, 5.0]}')
    assert reply.status == 200
    assert b"[2.5, 3.0, 4.5" in body
