"""No body causes an internal error, and the next request is answered correctly.

TPUSERVE_FUZZ is the number of bodies of each of the four kinds.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp

from server.dataplane import DataPlane
from server.frontends.rest.app import build_rest_app
from server.models.manager import Manager
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeLoader

EXAMPLES = int(os.environ.get("TPUSERVE_FUZZ", "50"))
GOOD = b'{"instances": [1.0, 2.0, 5.0]}'
ANSWER = b'{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}'

fuzz_settings = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    # By default, generate the same bodies in each run.
    derandomize="TPUSERVE_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.fixed_dictionaries({"b64": st.text("AZaz09+/=\n*", max_size=8)}),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
names = st.sampled_from(["two", "echo", "ratio", "nothing", "no such"]) | st.text(max_size=4)
rows = st.lists(st.fixed_dictionaries({}, optional={"x": values, "a": values, "text": values}))
likely = st.fixed_dictionaries(
    {},
    optional={
        "signature_name": names | values,
        "instances": rows | values,
        "inputs": values | st.fixed_dictionaries({}, optional={"x": values, "a": values}),
        "examples": rows | values,
        "context": values,
    },
)
numbers = st.lists(st.sampled_from(["1", "-0", "2.5", "1e5", "1e999", "[", "]", "NaN", ","]))


class Caller:
    """Sends requests to an application, all on one event loop."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()

    def post(self, path: bytes, body: bytes) -> tuple[int, bytes]:
        events: list[Any] = []
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not messages:
                # The client stays until the request is answered.
                await asyncio.Event().wait()
            return messages.pop()

        async def send(message: Any) -> None:
            events.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "raw_path": path,
            "query_string": b"",
            "headers": [],
        }
        self._loop.run_until_complete(self._app(scope, receive, send))
        return events[0]["status"], events[1]["body"]

    def close(self) -> None:
        self._loop.close()


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    manager = Manager(FakeLoader())
    aspire(manager, "half", {3: Path("/models/half/3")})
    app = build_rest_app(DataPlane(manager))
    caller = Caller(app)
    yield caller
    caller.close()
    app.close()


def assert_answered(caller: Caller, body: bytes) -> None:
    for verb in (b"predict", b"classify", b"regress"):
        status, answer = caller.post(b"/v1/models/half:" + verb, body)
        # 501 means a type that JSON cannot represent. This model has none.
        assert status in (200, 400), (verb, body, answer)
        if status == 400:
            assert list(json.loads(answer)) == ["error"]
    assert caller.post(b"/v1/models/half:predict", GOOD) == (200, ANSWER)


@pytest.mark.slow
@fuzz_settings
@given(likely)
def test_plausible_documents(caller: Caller, document: Any) -> None:
    assert_answered(caller, json.dumps(document).encode())


@fuzz_settings
@given(likely, st.data())
def test_damaged_documents(caller: Caller, document: Any, data: st.DataObject) -> None:
    body = bytearray(json.dumps(document, ensure_ascii=False).encode(errors="surrogatepass"))
    at = data.draw(st.integers(0, len(body)))
    body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    assert_answered(caller, bytes(body))


@fuzz_settings
@given(st.binary(max_size=200))
def test_any_bytes(caller: Caller, body: bytes) -> None:
    assert_answered(caller, body)


@fuzz_settings
@given(numbers, st.integers(0, 3000), st.integers(0, 3000))
def test_large_arrays_with_random_ends(
    caller: Caller, end: list[str], depth: int, length: int
) -> None:
    array = "[" * (depth % 40) + "1," * length + ",".join(end) + "]" * (depth // 75)
    assert_answered(caller, b'{"inputs": %s}' % array.encode())
