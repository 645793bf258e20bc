"""ModelStreamInfer answers each message of a stream in order, within the limits of requests."""

import json
import logging
import queue
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.admission.memory_budget import MemoryBudget
from server.dataplane import DataPlane
from server.frontends.grpc.services import message_stream
from server.metrics import Metrics
from server.models.manager import Manager
from server.scheduling.request_queues import RequestQueues
from server.scheduling.run_limits import RunLimits
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeModel
from tests.server.frontends.grpc import clients
from tpuserve.proto.open_inference import message_type

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
SECONDS = 30


def infer(request_id: str = "", *x: float, **fields: Any) -> bytes:
    request = message_type("ModelInferRequest")(
        **{"model_name": "half", "id": request_id, **fields},
        inputs=[{"name": "x", "datatype": "FP32", "shape": [len(x)]}],
        raw_input_contents=[np.array(x, np.float32).tobytes()],
    )
    return bytes(request.SerializeToString())


class Stream:
    """A stream whose messages the test sends one by one."""

    def __init__(self, channel: grpc.Channel, **options: Any) -> None:
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.call = channel.stream_stream(
            METHOD, response_deserializer=message_type("ModelStreamInferResponse").FromString
        )(iter(self._messages.get, None), **{"timeout": SECONDS, **options})

    def send(self, *messages: bytes) -> "Stream":
        for message in messages:
            self._messages.put(message)
        return self

    def close(self) -> None:
        """Send no more, so that the thread that sends the messages ends."""
        self._messages.put(None)

    def end(self) -> list[Any]:
        """Send no more, and return the remaining responses."""
        self.close()
        return list(self.call)

    def failure(self) -> tuple[str, str]:
        """Return the status code and the text with which the stream ends."""
        with pytest.raises(grpc.RpcError):
            next(self.call)
        self.close()
        return self.call.code().name, self.call.details()


def values(response: Any) -> list[float]:
    assert response.error_message == ""
    (raw,) = response.infer_response.raw_output_contents
    return list(np.frombuffer(raw, np.float32))


class Setting:
    """A server of the fake model "half", and a channel to it."""

    def __init__(self, stack: ExitStack, allow_direct_polling: bool) -> None:
        self.model = FakeModel()
        self.metrics = Metrics()
        self.admission = AdmissionController(4)
        self._manager = Manager(lambda _: self.model)
        aspire(self._manager, "half", {3: Path("/models/half/3")})
        self._stack, self._polling = stack, allow_direct_polling
        stack.callback(self._manager.close, 1)

    def start(self, **options: Any) -> Any:
        self._stack.callback(self.model.gate.set)
        self.server = self._stack.enter_context(
            clients.serving(
                DataPlane(self._manager),
                metrics=self.metrics,
                admission=self.admission,
                allow_direct_polling=self._polling,
                **options,
            )
        )
        return self._stack.enter_context(grpc.insecure_channel(self.server.address))

    def block(self) -> None:
        """Let the next run of the model wait for its gate."""
        self.model.has_begun.clear()
        self.model.gate.clear()


@pytest.fixture(params=[True, False], ids=["polling threads", "default threads"])
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    with ExitStack() as stack:
        yield Setting(stack, request.param)


def test_messages_are_answered_in_order_with_their_ids(setting: Setting) -> None:
    stream = Stream(setting.start()).send(*(infer(str(n), n) for n in range(50)))
    responses = stream.end()
    assert [response.infer_response.id for response in responses] == [str(n) for n in range(50)]
    assert [values(response) for response in responses] == [[n / 2 + 2] for n in range(50)]
    first = responses[0].infer_response
    assert (first.model_name, first.model_version) == ("half", "3")
    assert first.parameters["triton_final_response"].bool_param is True
    assert stream.call.code() is grpc.StatusCode.OK


def test_error_of_a_message_is_its_response_and_the_next_is_answered(setting: Setting) -> None:
    stream = Stream(setting.start()).send(
        infer("1", 1), infer("2", 1, model_name="other"), b"\xff", infer("4", 4)
    )
    first, unknown, malformed, last = stream.end()
    assert (values(first), values(last)) == ([2.5], [4.0])
    assert "other" in unknown.error_message
    assert (unknown.infer_response.model_name, unknown.infer_response.id) == ("other", "2")
    assert unknown.infer_response.parameters["triton_final_response"].bool_param is True
    assert malformed.error_message


def test_messages_wait_until_the_one_before_is_answered(setting: Setting) -> None:
    channel = setting.start()
    setting.block()
    stream = Stream(channel).send(infer("1", 1), infer("2", 2))
    assert setting.model.has_begun.wait(SECONDS)
    assert setting.admission.in_flight == 1
    setting.model.gate.set()
    assert [values(response) for response in stream.end()] == [[2.5], [3.0]]


def test_limit_on_requests_in_flight_refuses_a_message_and_not_the_stream(setting: Setting) -> None:
    channel = setting.start()
    for _ in range(4):
        setting.admission.acquire("other")
    stream = Stream(channel).send(infer("1", 1))
    assert "in flight" in next(stream.call).error_message
    for _ in range(4):
        setting.admission.release("other")
    (response,) = stream.send(infer("2", 2)).end()
    assert values(response) == [3.0]


def test_message_waits_in_the_queue_of_its_model(setting: Setting) -> None:
    queues = RequestQueues(lambda name: RunLimits(max_concurrent_runs=1, max_queue=1))
    channel = setting.start(queues=queues)
    setting.block()
    running, waiting = (Stream(channel).send(infer("", n)) for n in (1, 2))
    assert setting.model.has_begun.wait(SECONDS)
    while queues.count_waiting()[("half",)] == 0:
        pass
    assert "max_queue is 1" in Stream(channel).send(infer("", 3)).end()[0].error_message
    setting.model.gate.set()
    assert sorted(values(stream.end()[0])[0] for stream in (running, waiting)) == [2.5, 3.0]
    queues.close()


def test_memory_of_a_message_is_bounded_and_released(setting: Setting) -> None:
    budget = MemoryBudget(100_000)
    stream = Stream(setting.start(memory_budget=budget))
    large, small = infer("1", *range(50_000)), infer("2", *range(1000))
    for _ in range(50):
        stream.send(large, small)
    responses = stream.end()
    assert all(response.error_message for response in responses[::2])
    assert [len(values(response)) for response in responses[1::2]] == [1000] * 50
    assert budget.reserved_bytes == 0


@pytest.mark.parametrize("end", ["cancel", "deadline"])
def test_run_ends_with_the_stream(setting: Setting, end: str) -> None:
    channel = setting.start()
    setting.block()
    setting.model.on_cancel = setting.model.gate.set
    options = {"timeout": 0.3} if end == "deadline" else {}
    stream = Stream(channel, **options).send(infer("1", 1))
    if end == "cancel":
        assert setting.model.has_begun.wait(SECONDS)
        stream.call.cancel()
    with pytest.raises(grpc.RpcError):
        # The response with the error of the message may come before the end of the stream.
        list(stream.call)
    assert stream.call.code().name == {"cancel": "CANCELLED", "deadline": "DEADLINE_EXCEEDED"}[end]
    stream.close()
    assert setting.admission.wait_until_idle(SECONDS)


def test_idle_stream_ends_when_the_server_drains(setting: Setting) -> None:
    stream = Stream(setting.start()).send(infer("1", 1))
    assert values(next(stream.call)) == [2.5]
    setting.server.drain()
    expected = "UNAVAILABLE", "the server is shutting down. Open the stream to another server."
    assert stream.failure() == expected


def test_message_under_way_is_answered_before_a_draining_server_ends_the_stream(
    setting: Setting,
) -> None:
    channel = setting.start()
    setting.block()
    stream = Stream(channel).send(infer("1", 1), infer("2", 2))
    assert setting.model.has_begun.wait(SECONDS)
    setting.server.drain()
    setting.model.gate.set()
    assert values(next(stream.call)) == [2.5]
    assert stream.failure()[0] == "UNAVAILABLE"
    assert Stream(channel).send(infer("1", 1)).failure()[0] == "UNAVAILABLE"


def test_client_has_a_limit_on_its_streams(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_stream, "MAX_STREAMS_PER_PEER", 2)
    channel = setting.start()
    streams = [Stream(channel).send(infer("1", 1)) for _ in range(2)]
    for stream in streams:
        next(stream.call)
    code, text = Stream(channel).failure()
    assert (code, text) == (
        "RESOURCE_EXHAUSTED",
        "2 streams are open. Close one, or send the request with ModelInfer.",
    )
    for stream in streams:
        stream.end()


def test_stream_needs_a_key(setting: Setting, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret\n")
    channel = setting.start(keys=ApiKeys(tmp_path / "keys"))
    assert Stream(channel).failure()[0] == "UNAUTHENTICATED"
    (response,) = (
        Stream(channel, metadata=(("authorization", "Bearer secret"),)).send(infer("", 1)).end()
    )
    assert values(response) == [2.5]


def test_each_message_counts_in_metrics_and_access_log(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="server.access")
    messages = infer("1", 1), infer("2", 2), infer("3", 1, model_version="7")
    Stream(setting.start(access_log=True)).send(*messages).end()
    lines = [json.loads(line) for line in caplog.messages]
    assert [line["method"] for line in lines] == [METHOD] * 3
    assert [line["status"] for line in lines] == ["OK", "OK", "NOT_FOUND"]
    assert [line["bytes_in"] for line in lines] == [len(message) for message in messages]
    page = setting.metrics.exposition().decode()
    assert ':tensorflow:serving:request_count{model_name="half",status="OK"} 2\n' in page
    assert ':tensorflow:serving:request_count{model_name="half",status="NOT_FOUND"} 1\n' in page


def test_compressed_messages_are_answered(setting: Setting) -> None:
    stream = Stream(setting.start(), compression=grpc.Compression.Gzip)
    (first, second) = stream.send(infer("1", *[1] * 1000), infer("2", 5)).end()
    assert (len(values(first)), values(second)) == (1000, [4.5])
