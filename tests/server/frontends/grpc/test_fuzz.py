"""The server answers any bytes, and answers the next valid request correctly.

TPUSERVE_FUZZ_MESSAGES sets the number of messages to each method. With 1429 or more, ten thousand
in all, a test also bounds the growth of the server's memory.
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.dataplane import DataPlane
from server.models.manager import Manager
from tests.server.aspired_versions import aspire
from tests.server.dataplane.models import ExamplesModel
from tests.server.fakes import FakeModel
from tests.server.frontends.grpc import clients

MESSAGES = int(os.environ.get("TPUSERVE_FUZZ_MESSAGES", "40"))
# A message takes a few kilobytes, so a leak of many messages exceeds this bound.
MOST_GROWTH_KIB = 300_000
# After this number of messages, all caches are filled.
SETTLED = 2000
MANY = 10_000

PREDICTION = "/tensorflow.serving.PredictionService/"
MODEL = "/tensorflow.serving.ModelService/"
METHODS = {
    "Predict": PREDICTION,
    "Classify": PREDICTION,
    "Regress": PREDICTION,
    "MultiInference": PREDICTION,
    "GetModelMetadata": PREDICTION,
    "GetModelStatus": MODEL,
    "HandleReloadConfigRequest": MODEL,
}
FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


class Model(ExamplesModel):
    """All signatures of the two fake models, except those that fail on purpose."""

    signatures = {
        **{k: v for k, v in FakeModel.signatures.items() if k not in ("failing", "broken")},
        **{f"examples_{name}": signature for name, signature in ExamplesModel.signatures.items()},
    }
    signature_defs = {}

    def _run(self, signature_name: str, inputs: Any) -> Any:
        if signature_name.startswith("examples_"):
            return super()._run(signature_name.removeprefix("examples_"), inputs)
        return FakeModel._run(self, signature_name, inputs)


@pytest.fixture(scope="module")
def client() -> Iterator[clients.Client]:
    manager = Manager(lambda directory: Model())
    aspire(manager, "half", {3: Path("/models/half/3")})
    with (
        clients.serving(DataPlane(manager, reload=lambda config: None)) as server,
        clients.connect(server.address) as client,
    ):
        yield client
    manager.close(1)


def varint(number: int) -> bytes:
    from tpuserve.proto import protobuf_wire

    return protobuf_wire.encode_varint(number)


def fields(values: Any) -> Any:
    """Generate messages with the field numbers and wire types of the API's messages."""
    number = st.integers(1, 17)
    length = st.builds(lambda n, v: varint(n << 3 | 2) + varint(len(v)) + v, number, values)
    plain = st.builds(lambda n, v: varint(n << 3) + varint(v), number, st.integers(0, 2**64 - 1))
    fixed = st.builds(
        lambda n, v: varint(n << 3 | 5) + v, number, st.binary(min_size=4, max_size=4)
    )
    return st.lists(length | plain | fixed, max_size=5).map(b"".join)


WORDS = [b"half", b"x", b"y", b"two", b"a", b"nothing", b"signature_def", b"examples_regress"]
SMALL = st.sampled_from(WORDS) | st.binary(max_size=12)
SPEC = b"\x0a\x06\x0a\x04half"
RANDOM = st.recursive(SMALL, fields, max_leaves=12)
# Bytes that fit no message, bytes that fit some message, and messages to an existing model.
PROTOS = st.binary(max_size=200) | RANDOM | RANDOM.map(lambda rest: SPEC + rest)


def damaged_messages(raw: bytes) -> Any:
    """Generate copies of a valid message with up to four changed bytes."""
    changes = st.lists(st.tuples(st.integers(0, len(raw) - 1), st.integers(0, 255)), max_size=4)

    def damage(changed: list[tuple[int, int]]) -> bytes:
        copy = bytearray(raw)
        for position, byte in changed:
            copy[position] = byte
        return bytes(copy)

    return changes.map(damage)


def valid_messages() -> dict[str, bytes]:
    """Return a valid message for each method."""
    from tensorflow_serving.apis import (
        classification_pb2,
        get_model_metadata_pb2,
        inference_pb2,
        model_management_pb2,
    )

    spec = clients.model_spec(name="half", signature_name="examples_regress", version=3)
    input_message = clients.example_list([clients.example(x=1)], clients.example(y=2))
    examples = classification_pb2.ClassificationRequest(model_spec=spec, input=input_message)
    tasks = inference_pb2.MultiInferenceRequest(input=input_message)
    tasks.tasks.add(model_spec=spec, method_name="tensorflow/serving/regress")
    reload = model_management_pb2.ReloadConfigRequest(metric_names=["a"])
    models = reload.config.model_config_list.config
    models.add(name="a", base_path="/a", model_platform="tensorflow", version_labels={"l": 1})
    metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    metadata.model_spec.CopyFrom(spec)
    messages = {
        "Predict": clients.predict_request("y", x=[1.0, 2.0, 5.0]),
        "Classify": examples,
        "Regress": examples,
        "MultiInference": tasks,
        "GetModelMetadata": metadata,
        "GetModelStatus": metadata,
        "HandleReloadConfigRequest": reload,
    }
    return {name: message.SerializeToString() for name, message in messages.items()}


class Tally:
    """The number of messages so far, and the memory of this process after `SETTLED` of them."""

    num_messages = 0
    settled_kib = 0

    def count(self) -> None:
        self.num_messages += 1
        if self.num_messages == SETTLED:
            self.settled_kib = resident_kib()


def resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


@pytest.fixture(scope="module")
def tally() -> Tally:
    return Tally()


@pytest.mark.parametrize("method", METHODS)
def test_arbitrary_messages_cause_no_fault(
    client: clients.Client, tally: Tally, method: str
) -> None:
    call = client.channel.unary_unary(METHODS[method] + method)
    before, sent_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, tally.num_messages

    @settings(
        max_examples=MESSAGES,
        deadline=None,
        database=None,
        derandomize=MESSAGES < 1000,
        suppress_health_check=list(HealthCheck),
    )
    @given(raw=PROTOS | damaged_messages(valid_messages()[method]))
    def send(raw: bytes) -> None:
        tally.count()
        reply = call.future(raw, timeout=20)
        assert reply.code() not in FAULTS, reply.details()

    send()
    assert tally.num_messages - sent_before == MESSAGES
    assert list(client.predict(x=[1.0]).outputs["y"].float_val) == [2.5]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_GROWTH_KIB


@pytest.mark.skipif(MESSAGES * len(METHODS) < MANY, reason="TPUSERVE_FUZZ_MESSAGES is below 1429")
def test_memory_does_not_grow_with_the_number_of_messages(tally: Tally) -> None:
    assert tally.num_messages >= MANY
    assert resident_kib() < 1.15 * tally.settled_kib
