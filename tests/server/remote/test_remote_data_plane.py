"""The remote data plane handles outdated signatures, unexpected errors and the loss of one end."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.admission.cancellation import Cancellation
from server.dataplane import DataPlane, ModelSpec, Prediction
from server.models.manager import Manager
from server.remote import protocol
from server.remote.call import RemoteCall
from server.remote.client import EngineClient
from server.remote.data_plane import RemoteDataPlane
from server.remote.endpoint import EngineEndpoint
from server.remote.protocol import EngineFault
from server.scheduling.run_limits import RunLimits
from server.servables import pending
from server.servables.pending import Completion, Pending
from server.servables.servable import Array
from tests.server.aspired_versions import aspire
from tests.server.fakes import FakeLoader, FakeModel, spec
from tests.server.remote import in_process_connection
from tpuserve.errors import DeadlineExceeded, InvalidTensor, ModelsNotAvailable, Unavailable
from tpuserve.saved_model.signature import Signature

HALF = ModelSpec("half")
LARGE = np.ones((256, 256), np.float32)


def read_two(signature: Signature) -> Mapping[str, Array]:
    return {"x": np.array([2], np.float32)}


@pytest.fixture
def remote(dataplane: DataPlane) -> Iterator[RemoteDataPlane]:
    with in_process_connection.remote(dataplane) as remote:
        yield remote


class RenamedModel(FakeModel):
    """A model whose input is called "z" instead of "x"."""

    signatures: Mapping[str, Signature] = {
        "serving_default": Signature({"z": spec("float32", "z")}, {"y": spec("float32", "y")})
    }

    def _run(self, signature_name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return super()._run(signature_name, {"x": inputs["z"]})


class HeldBatch(Completion):
    """A batch that ends when the test sets the result of `end`."""

    def __init__(self) -> None:
        self.end = Future[None]()

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        self.end.add_done_callback(lambda _: callback())

    def count_values(self) -> int:
        return 0


def test_signature_is_asked_for_once(dataplane: DataPlane, remote: RemoteDataPlane) -> None:
    signatures: list[Signature] = []

    def read(signature: Signature) -> Mapping[str, Array]:
        signatures.append(signature)
        return read_two(signature)

    for _ in range(3):
        assert remote.predict(HALF, read).outputs["y"].tolist() == [3.0]
    assert signatures[0] is signatures[1] is signatures[2]


def test_inputs_are_read_again_by_the_signature_of_a_new_version(
    manager: Manager, loader: FakeLoader, remote: RemoteDataPlane
) -> None:
    def read(signature: Signature) -> Mapping[str, Array]:
        return {name: np.array([2], np.float32) for name in signature.inputs}

    assert remote.predict(HALF, read).version == 3
    loader.model_type = RenamedModel
    aspire(manager, "half", {4: Path("/models/half/4")})
    prediction = remote.predict(HALF, read)
    assert prediction.version == 4
    assert prediction.outputs["y"].tolist() == [3.0]


def test_error_of_reading_comes_from_the_present_signature(
    manager: Manager, loader: FakeLoader, remote: RemoteDataPlane
) -> None:
    def read(signature: Signature) -> Mapping[str, Array]:
        if "x" in signature.inputs:
            raise InvalidTensor("not as x")
        return {"z": np.array([2], np.float32)}

    with pytest.raises(InvalidTensor, match="not as x"):
        remote.predict(HALF, read)
    loader.model_type = RenamedModel
    aspire(manager, "half", {4: Path("/models/half/4")})
    assert remote.predict(HALF, read).outputs["y"].tolist() == [3.0]


def test_a_call_that_waits_in_the_queue_of_the_engine_ends_at_its_time_limit(
    manager: Manager, loader: FakeLoader
) -> None:
    dataplane = DataPlane(manager, run_limits=lambda model: RunLimits(max_concurrent_runs=1))
    model = loader.models[3]
    model.gate.clear()
    with in_process_connection.remote(dataplane) as remote:
        running = remote.start_predict(HALF, read_two)
        assert model.has_begun.wait(30)
        waiting = remote.start_predict(HALF, read_two, timeout_ms=60_000)
        refused: tuple[Pending[Any], ...] = (
            remote.start_predict(HALF, read_two, timeout_ms=50),
            remote.start_classify(HALF, [b""], timeout_ms=50),
        )
        for call in refused:
            with pytest.raises(DeadlineExceeded, match="for model half, and its time limit has pa"):
                call.finish()
        model.gate.set()
        for call in (running, waiting):
            assert call.finish().outputs["y"].tolist() == [3.0]
        # The time in the queue counts.
        assert (model.timeout_ms or 60_000) <= 59_950


def test_fault_of_the_engine_is_no_fault_of_the_client_and_says_where(
    remote: RemoteDataPlane,
) -> None:
    with pytest.raises(EngineFault, match="a fault that nobody has foreseen"):
        remote.predict(ModelSpec("half", signature_name="broken"), read_two)


def test_error_arrives_as_it_was_raised(dataplane: DataPlane) -> None:
    def fail(config: object) -> None:
        raise ModelsNotAvailable("1 model(s) did not become available")

    dataplane._reload = fail
    with (
        in_process_connection.remote(dataplane) as remote,
        pytest.raises(ModelsNotAvailable, match=r"^1 model\(s\) did not become available$"),
    ):
        remote.reload("a configuration")


def test_status_does_not_wait_for_reloads(dataplane: DataPlane) -> None:
    reloads = 20
    begun, gate = threading.Semaphore(0), threading.Event()

    def reload(config: object) -> None:
        begun.release()
        assert gate.wait(30)

    dataplane._reload = reload
    with in_process_connection.remote(dataplane) as remote, ThreadPoolExecutor(reloads) as pool:
        replies = [pool.submit(remote.reload, "a configuration") for _ in range(reloads)]
        assert begun.acquire(timeout=30)
        assert remote.status("half")[0].version == 3
        assert remote.predict(HALF, read_two).version == 3
        assert not any(reply.done() for reply in replies)
        gate.set()
        assert [reply.result(30) for reply in replies] == [None] * reloads


def test_quick_model_that_waits_for_its_batch_delays_no_other_request(
    dataplane: DataPlane, remote: RemoteDataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        assert remote.predict(HALF, read_two).outputs["y"].tolist() == [3.0]
    start_predict = dataplane.start_predict
    waiting, batch = threading.Event(), HeldBatch()

    def wait_for_batch(*args: Any, **options: Any) -> Pending[Prediction]:
        prediction = pending.wait(start_predict(*args, **options))
        waiting.set()

        def finish() -> Prediction:
            batch.end.result()
            return prediction

        return Pending(batch, finish)

    monkeypatch.setattr(dataplane, "start_predict", wait_for_batch)
    with ThreadPoolExecutor() as pool:
        request = pool.submit(remote.predict, HALF, read_two)
        assert waiting.wait(30)
        try:
            assert pool.submit(remote.status, "half").result(60)
        finally:
            batch.end.set_result(None)
        assert request.result().outputs["y"].tolist() == [3.0]


def test_cancelled_request_is_cancelled_in_the_engine(
    dataplane: DataPlane, loader: FakeLoader, remote: RemoteDataPlane
) -> None:
    model = loader.models[3]
    model.gate.clear()
    cancellation, reached = Cancellation(), threading.Event()
    model.on_cancel = reached.set
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(remote.predict, HALF, read_two, cancellation=cancellation)
        assert model.has_begun.wait(30)
        cancellation.cancel()
        assert reached.wait(30)
        model.gate.set()
        assert reply.result(30).version == 3


def test_memory_of_large_inputs_and_outputs_is_given_back(dataplane: DataPlane) -> None:
    endpoint = EngineEndpoint(dataplane, 4)
    endpoint.start()
    client = EngineClient(in_process_connection.start_reader)
    engine_end = in_process_connection.connect(client, endpoint)
    remote = RemoteDataPlane(client)
    for _ in range(20):
        prediction = remote.predict(HALF, lambda _: {"x": LARGE})
        assert prediction.outputs["y"].tolist() == (LARGE / 2 + 2).tolist()
    # At most the arrays of the last request are still in shared memory: the next message would free
    # them.
    assert client.channel.shared_bytes <= 2 * LARGE.nbytes
    assert engine_end.shared_bytes <= 2 * LARGE.nbytes
    client.close()
    endpoint.close()


def test_the_size_of_the_outputs_is_known_before_they_are_unpacked(
    remote: RemoteDataPlane,
) -> None:
    echo, broken = (ModelSpec("half", signature_name=name) for name in ("echo", "broken"))
    long_text, short_text = (np.array([b"x" * n], object) for n in (1 << 20, 10))
    requests = (
        remote.start_predict(HALF, lambda _: {"x": LARGE}),
        remote.start_predict(echo, lambda _: {"text": long_text}),
        remote.start_predict(HALF, read_two),
        remote.start_predict(echo, lambda _: {"text": short_text}),
        remote.start_predict(broken, read_two),
    )
    for request in requests:
        is_answered = threading.Event()
        request.add_done_callback(is_answered.set)
        assert is_answered.wait(30)
    assert [request.is_large for request in requests] == [True, True, False, False, False]


def test_the_size_of_other_answers_is_known_too(remote: RemoteDataPlane) -> None:
    call = RemoteCall(remote._client.channel)
    call.complete((protocol.RESULT, 1, [], protocol.pack(["label"] * 100_000), ()))
    assert call.count_values() > 10_000
    call.complete(Prediction("half", 3, "serving_default", {"y": LARGE}))
    assert call.count_values() == LARGE.size


def test_answered_request_is_freed_without_the_garbage_collector(
    remote: RemoteDataPlane,
) -> None:
    is_freed, is_answered = threading.Event(), threading.Event()

    def read(signature: Signature) -> Mapping[str, Array]:
        inputs = np.array([2], np.float32)
        weakref.finalize(inputs, is_freed.set)
        return {"x": inputs}

    def answer(pending: Pending[Prediction]) -> None:
        assert pending.finish().version == 3
        is_answered.set()

    remote.predict(HALF, read_two)
    gc.disable()
    try:
        pending = remote.start_predict(HALF, read)
        pending.add_done_callback(partial(answer, pending))
        del pending
        assert is_answered.wait(30)
        assert is_freed.wait(30)
    finally:
        gc.enable()


def test_request_in_flight_is_unavailable_when_the_engine_ends(
    dataplane: DataPlane, loader: FakeLoader
) -> None:
    endpoint = EngineEndpoint(dataplane, 4)
    endpoint.start()
    disconnected = threading.Event()
    client = EngineClient(in_process_connection.start_reader, disconnected.set)
    in_process_connection.connect(client, endpoint)
    remote = RemoteDataPlane(client)
    remote.predict(HALF, read_two)
    model = loader.models[3]
    model.has_begun.clear()
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(remote.predict, HALF, read_two)
        assert model.has_begun.wait(30)
        endpoint.close()
        with pytest.raises(Unavailable, match="is started again"):
            reply.result(30)
        model.gate.set()
    assert disconnected.is_set()
    assert not remote.is_available
    with pytest.raises(Unavailable):
        remote.predict(HALF, read_two)
    client.close()


def test_new_engine_is_used_from_its_connection_on(dataplane: DataPlane) -> None:
    client = EngineClient(in_process_connection.start_reader)
    remote = RemoteDataPlane(client)
    for _ in range(2):
        endpoint = EngineEndpoint(dataplane, 4)
        endpoint.start()
        in_process_connection.connect(client, endpoint)
        assert remote.predict(HALF, read_two).outputs["y"].tolist() == [3.0]
        endpoint.close()
    client.close()


def test_connected_client_waits_until_the_engine_says_whether_a_model_is_available(
    dataplane: DataPlane,
) -> None:
    endpoint = EngineEndpoint(dataplane, 4)
    endpoint.start()
    client = EngineClient(in_process_connection.start_reader)
    channel = in_process_connection.greet(client)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.wait_for_state)
        assert not client.is_available
        endpoint.add(channel)
        waiting.result(30)
        assert client.is_available
    endpoint.close()
    client.close()


def test_client_that_leaves_cancels_its_requests(dataplane: DataPlane, loader: FakeLoader) -> None:
    model, reached = loader.models[3], threading.Event()
    model.gate.clear()
    model.on_cancel = reached.set
    with ThreadPoolExecutor() as pool:
        with in_process_connection.remote(dataplane) as remote:
            reply = pool.submit(remote.predict, HALF, read_two)
            assert model.has_begun.wait(30)
        assert reached.wait(30)
        model.gate.set()
        assert isinstance(reply.exception(30), Unavailable)
