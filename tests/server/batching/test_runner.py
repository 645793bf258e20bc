"""Requests of many clients run together, and each gets its own answer."""

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.admission.cancellation import Cancellation
from server.admission.nonblocking import NonBlocking, WouldBlock
from server.batching.factory import BatchingRunnerFactory
from server.batching.row_check import RowCheck
from server.batching.runner import BatchingRunner
from server.config.batching_parameters import BatchingParameters
from server.dataplane import ModelSpec
from server.metrics import Metrics
from server.models.manager import Manager
from server.servables.direct_runner import DirectRunner
from server.servables.pending import Pending
from server.servables.servable import Array
from tests.server import contexts
from tests.server.aspired_versions import aspire
from tests.server.batching.waiting_policy import WaitingTasksPolicy
from tests.server.fakes import FakeModel
from tests.server.waiting_data_plane import WaitingDataPlane
from tests.threads import no_new_threads
from tpuserve.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidConfig,
    InvalidTensor,
    ModelExecutionError,
    SignatureNotFound,
    TpuserveError,
    Unavailable,
)
from tpuserve.graph.state_writes import Write

# With these parameters a batch runs when it has four rows; the timeout is longer than the test.
FOUR = BatchingParameters(
    max_batch_size=4, batch_timeout_micros=60_000_000, num_batch_threads=1, thread_pool_name="pool"
)


class CountingModel(FakeModel):
    """Records the signature, the number of rows and the thread of each run."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[tuple[str, int]] = []
        self.threads: list[threading.Thread] = []

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, Array]:
        self.runs.append(
            (
                signature_name,
                max((len(np.atleast_1d(array)) for array in inputs.values()), default=0),
            )
        )
        self.threads.append(threading.current_thread())
        return super().run(
            signature_name,
            inputs,
            output_names,
            timeout_ms=timeout_ms,
            cancellation=cancellation,
        )


def half(*values: float, dtype: type[Any] = np.float32) -> Mapping[str, Array]:
    return {"x": np.array(values, dtype)}


class Clients:
    """Sends requests in order, each in a thread of its own."""

    def __init__(self, parameters: BatchingParameters, model: FakeModel, **how: Any) -> None:
        self.runners = BatchingRunnerFactory(parameters, **how)
        self.runner = self.runners.wrap(model, Path("/models/half/3"), "half/3")
        self._pool = ThreadPoolExecutor(8)

    def start(self, inputs: Mapping[str, Array], name: str = "serving_default", **how: Any) -> Any:
        """Start a request in a new thread; return the future of its answer."""
        return self._pool.submit(contexts.run, self.runner, name, inputs, **how)

    def send(self, inputs: Mapping[str, Array], name: str = "serving_default", **how: Any) -> Any:
        """Start a request, and wait until it is in its queue or has left the queue again."""
        before = self.waiting
        future = self.start(inputs, name, **how)
        while self.waiting == before and not future.done():
            pass
        return future

    @property
    def waiting(self) -> int:
        return int(sum(self.runners._count_waiting().values()))

    def close(self) -> None:
        self.runners.close()
        self._pool.shutdown()


def error_of(future: "Future[Any]") -> tuple[str, str]:
    error = future.exception(10)
    assert isinstance(error, TpuserveError)
    return error.code.name, str(error)


@pytest.fixture
def model() -> CountingModel:
    return CountingModel()


def test_requests_run_together_and_get_their_own_rows(model: CountingModel) -> None:
    clients = Clients(FOUR, model)
    first, second = clients.send(half(1, 2, 5)), clients.send(half(3))
    assert first.result(10)["y"].tolist() == [2.5, 3, 4.5]
    assert second.result(10)["y"].tolist() == [3.5]
    assert model.runs == [("serving_default", 4)]
    assert isinstance(clients.runner, BatchingRunner)
    ((rows, (count, run_ns)),) = clients.runner.batch_runs.items()
    assert (rows, count) == (4, 1)
    assert run_ns > 0
    clients.close()


def test_other_signatures_and_outputs_do_not_run_together(model: CountingModel) -> None:
    clients = Clients(FOUR, model)
    ints = {"a": np.arange(2, dtype=np.int32), "b": np.arange(2, dtype=np.int32)}
    futures = [
        clients.send(half(1, 2)),
        clients.send(ints, "two"),
        clients.send(ints, "two", output_names=["sum"]),
        clients.send(ints, "two", output_names=["sum", "difference"]),
        clients.send(ints, "two", output_names=["difference", "sum"]),
    ]
    clients.close()
    assert [sorted(future.result(10)) for future in futures] == [
        ["y"],
        ["difference", "sum"],
        ["sum"],
        *[["difference", "sum"]] * 2,
    ]
    assert sorted(model.runs) == [("serving_default", 2), *[("two", 2)] * 2, ("two", 4)]


def test_large_request_is_split_and_put_together_again(model: CountingModel) -> None:
    clients = Clients(
        BatchingParameters(
            max_batch_size=10,
            num_batch_threads=2,
            enable_large_batch_splitting=True,
            max_execution_batch_size=4,
        ),
        model,
    )
    answer = contexts.run(clients.runner, "serving_default", half(*range(10)))
    assert answer["y"].tolist() == [number / 2 + 2 for number in range(10)]
    assert sorted(rows for _, rows in model.runs) == [2, 4, 4]
    clients.close()


def test_batch_is_padded_and_the_padding_is_counted(model: CountingModel) -> None:
    metrics = Metrics()
    parameters = BatchingParameters(
        max_batch_size=8, num_batch_threads=1, allowed_batch_sizes=(4, 8), thread_pool_name="pool"
    )
    clients = Clients(parameters, model, metrics=metrics)
    assert contexts.run(clients.runner, "serving_default", half(1, 2, 5))["y"].tolist() == [
        2.5,
        3,
        4.5,
    ]
    clients.close()
    assert model.runs == [("serving_default", 4)]
    assert isinstance(clients.runner, BatchingRunner)
    assert list(clients.runner.batch_runs) == [3]
    lines = metrics.exposition().decode().splitlines()
    serving = ":tensorflow:serving:batching_session:"
    for line in (
        f"{serving}wrapped_run_count 1",
        f'{serving}padding_size_sum{{execution_batch_size="4"}} 1',
        f"{serving}input_batch_size_sum 3",
        f"{serving}processed_batch_size_sum 4",
        f'{serving}queuing_latency_count{{thread_pool_name="pool"}} 1',
        'tpuserve_queue_size{model_name="half"} 0',
        'tpuserve_batch_size_sum{metagraph="",model_name="half",signature="serving_default",'
        'version="3"} 3',
    ):
        assert line in lines


def test_request_that_the_model_refuses_harms_no_neighbour(model: CountingModel) -> None:
    clients = Clients(FOUR, model)
    wrong = clients.send({"x": np.ones((2, 1, 1), np.float32)})
    again = clients.send({"x": np.ones((2, 1, 1), np.float32)})
    assert error_of(wrong) == error_of(again)
    assert error_of(wrong) == ("INVALID_ARGUMENT", "input must be a vector or a matrix")
    typed, good = clients.send(half(1, 2, dtype=np.float64)), clients.send(half(1, 2))
    assert error_of(typed)[0] == "INVALID_ARGUMENT"
    assert good.result(10)["y"].tolist() == [2.5, 3]
    clients.close()


@pytest.mark.parametrize(
    ("name", "shape", "code"),
    [("serving_default", (2, 1, 1), "INVALID_ARGUMENT"), ("failing", (2,), "INTERNAL")],
)
def test_requests_of_a_refused_batch_are_counted_once(
    model: CountingModel, name: str, shape: tuple[int, ...], code: str
) -> None:
    clients = Clients(FOUR, model)
    refused = [clients.send({"x": np.ones(shape, np.float32)}, name) for _ in range(2)]
    assert [error_of(future)[0] for future in refused] == [code] * 2
    assert [size for _, size in model.runs] == [4, 2, 2]
    assert isinstance(clients.runner, BatchingRunner)
    statistics = clients.runner.statistics
    assert (statistics["requests"], statistics["batches"], statistics["rows"]) == (2, 2, 4)
    clients.close()


def test_requests_of_other_shapes_run_in_groups_of_equal_shapes(model: CountingModel) -> None:
    clients = Clients(FOUR, model)
    futures = [clients.send({"x": np.ones((1, width), np.float32)}) for width in (1, 2, 1, 1)]
    assert [future.result(10)["y"].shape for future in futures] == [(1, 1), (1, 2), (1, 1), (1, 1)]
    assert model.runs == [("serving_default", 3), ("serving_default", 1)]
    clients.close()


@pytest.mark.parametrize("name", ["failing", "broken"])
def test_failure_of_the_model_ends_every_request_of_the_batch(
    model: CountingModel, name: str
) -> None:
    clients = Clients(FOUR, model)
    futures = [clients.send(half(1, 2), name) for _ in range(2)]
    for future in futures:
        assert isinstance(future.exception(10), ModelExecutionError)
    assert clients.send(half(1, 2, 3, 4)).result(10)["y"].tolist() == [2.5, 3, 3.5, 4]
    clients.close()


def test_output_that_is_no_batch_is_refused() -> None:
    class OneRow(FakeModel):
        def _run(self, signature_name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
            return {"y": np.ones(1, np.float32)}

    clients = Clients(FOUR, OneRow())
    assert error_of(clients.send(half(1, 2, 3, 4)))[0] == "FAILED_PRECONDITION"
    clients.close()


def test_request_whose_time_is_up_is_answered_and_not_run(model: CountingModel) -> None:
    clients = Clients(FOUR, model)
    with pytest.raises(DeadlineExceeded) as caught:
        contexts.run(clients.runner, "serving_default", half(9), timeout_ms=1)
    assert str(caught.value).startswith("the time limit of the request has passed")
    assert clients.waiting == 0
    assert clients.send(half(1, 2, 5, 7)).result(10)["y"].tolist() == [2.5, 3, 4.5, 5.5]
    assert model.runs == [("serving_default", 4)]
    clients.close()


def test_cancelled_request_leaves_its_queue_at_once(model: CountingModel) -> None:
    clients = Clients(FOUR, model)
    cancellation = Cancellation()
    cancelled = clients.send(half(1, 2, 3), cancellation=cancellation)
    cancellation.cancel()
    assert error_of(cancelled)[0] == "CANCELLED"
    assert clients.waiting == 0
    assert clients.send(half(1, 2, 3, 4)).result(10)["y"].tolist() == [2.5, 3, 3.5, 4]
    assert model.runs == [("serving_default", 4)]
    with pytest.raises(Cancelled):
        contexts.run(clients.runner, "serving_default", half(1), cancellation=cancellation)
    clients.close()


def test_batch_may_take_as_long_as_the_most_patient_request(model: CountingModel) -> None:
    clients = Clients(FOUR, model, clock=lambda: 0.0)
    impatient, patient = (
        clients.send(half(1, 2), timeout_ms=timeout_ms) for timeout_ms in (7e6, 9e6)
    )
    assert impatient.result(10).keys() == patient.result(10).keys()
    assert model.timeout_ms == pytest.approx(9e6, abs=60_000)
    clients.send(half(1, 2), timeout_ms=7e6), clients.send(half(1, 2))
    clients.close()
    assert model.timeout_ms is None


@pytest.mark.parametrize(
    ("inputs", "name", "error"),
    [
        ({"a": np.ones(1), "b": np.ones(2)}, "two", InvalidTensor),
        (half(1), "S", SignatureNotFound),
    ],
)
def test_what_cannot_be_batched_is_refused_at_the_door(
    model: CountingModel, inputs: Any, name: str, error: type[Exception]
) -> None:
    clients = Clients(FOUR, model)
    with pytest.raises(error):
        contexts.run(clients.runner, name, inputs)
    assert model.runs == []


def test_signature_without_inputs_is_run_as_it_is(model: CountingModel) -> None:
    assert contexts.run(Clients(FOUR, model).runner, "nothing", {})["y"].tolist() == [7]


def test_full_queue_refuses_until_a_batch_is_taken(model: CountingModel) -> None:
    parameters = BatchingParameters(max_batch_size=1, max_enqueued_batches=1, num_batch_threads=1)
    model.gate.clear()
    clients = Clients(parameters, model)
    running = clients.start(half(1))
    assert model.has_begun.wait(10)
    waiting = clients.send(half(2))
    assert error_of(clients.send(half(3)))[0] == "UNAVAILABLE"
    model.gate.set()
    assert [future.result(10)["y"].tolist() for future in (running, waiting)] == [[2.5], [3]]
    clients.close()


def test_another_policy_is_given_in_place_of_tensorflow_servings(model: CountingModel) -> None:
    model.gate.clear()
    clients = Clients(
        BatchingParameters(num_batch_threads=1), model, make_policy=WaitingTasksPolicy
    )
    futures = [clients.start(half(1))]
    assert model.has_begun.wait(10)
    futures += [clients.send(half(2)), clients.send(half(3))]
    model.gate.set()
    assert [future.result(10)["y"].tolist() for future in futures] == [[2.5], [3], [3.5]]
    assert [rows for _, rows in model.runs] == [1, 2]
    clients.close()


def test_version_brings_its_own_parameters_or_is_not_batched(
    model: CountingModel, tmp_path: Path
) -> None:
    runners = BatchingRunnerFactory(FOUR, per_model=True)
    assert isinstance(runners.wrap(model, tmp_path), DirectRunner)
    (tmp_path / "batching_params.pbtxt").write_text("max_batch_size { value: 1 }")
    runner = runners.wrap(model, tmp_path)
    assert isinstance(runner, BatchingRunner)
    assert contexts.run(runner, "serving_default", half(1))["y"].tolist() == [2.5]
    with pytest.raises(TpuserveError, match="maximum input batch size 1"):
        contexts.run(runner, "serving_default", half(1, 2))
    (tmp_path / "batching_params.pbtxt").write_text("max_batch_size")
    with pytest.raises(InvalidConfig):
        runners.wrap(model, tmp_path)
    runners.close()


def test_batches_run_while_no_thread_can_be_started(model: CountingModel) -> None:
    clients = Clients(FOUR, model)
    assert isinstance(clients.runner, BatchingRunner)
    with no_new_threads():
        first = contexts.start(clients.runner, "serving_default", half(1))
        second = contexts.start(clients.runner, "serving_default", half(2, 5, 3))
        assert isinstance(first, Pending)
        assert isinstance(second, Pending)
        assert first.finish()["y"].tolist() == [2.5]
        assert second.finish()["y"].tolist() == [3, 4.5, 3.5]
    clients.close()


def test_a_version_without_a_thread_for_its_batches_is_not_loaded(model: CountingModel) -> None:
    runners = BatchingRunnerFactory(FOUR)
    with no_new_threads(), pytest.raises(Unavailable, match="can't start new thread"):
        runners.wrap(model, Path("/models/half/3"), "half/3")
    assert runners._count_waiting() == {}


def test_a_waiting_request_ends_at_its_deadline_without_a_thread_that_waits_for_it(
    model: CountingModel,
) -> None:
    clients = Clients(FOUR, model)
    assert isinstance(clients.runner, BatchingRunner)
    late = contexts.start(clients.runner, "serving_default", half(9), timeout_ms=20)
    early = contexts.start(clients.runner, "serving_default", half(1), timeout_ms=60_000)
    assert isinstance(late, Pending)
    assert isinstance(early, Pending)
    has_ended = threading.Event()
    late.add_done_callback(has_ended.set)
    assert has_ended.wait(30)
    with pytest.raises(DeadlineExceeded, match="the time limit of the request has passed"):
        late.finish()
    assert clients.waiting == 1
    assert clients.send(half(2, 5, 7)).result(10)["y"].tolist() == [3, 4.5, 5.5]
    assert early.finish()["y"].tolist() == [2.5]
    clients.close()


def test_requests_that_must_not_be_batched_run_in_as_many_threads_as_batches(
    model: CountingModel,
) -> None:
    runners = BatchingRunnerFactory(
        BatchingParameters(num_batch_threads=1, batching_policy="continuous"),
        find_unbatched=lambda *arguments: {"serving_default": "its rows change each other"},
    )
    runner = runners.wrap(model, Path("/models/half/3"), "half/3")
    model.gate.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(contexts.run, runner, "serving_default", half(1))
        assert model.has_begun.wait(10)
        with pytest.raises(DeadlineExceeded, match="the time limit of the request has passed"):
            contexts.run(runner, "serving_default", half(2), timeout_ms=20)
        with NonBlocking(), pytest.raises(WouldBlock):
            contexts.run(runner, "serving_default", half(2))
        second = pool.submit(contexts.run, runner, "serving_default", half(3), timeout_ms=60_000)
        model.gate.set()
        assert [first.result(10)["y"], second.result(10)["y"]] == [2.5, 3.5]
    assert len(model.runs) == 2
    runners.close()


@pytest.mark.parametrize("policy", ["continuous", "timeout"])
def test_signature_that_writes_is_never_run_by_a_check_nor_batched(
    model: CountingModel, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    (name, signature) = ("serving_default", model.signatures["serving_default"])
    write = Write("updates a variable", "AssignAddVariableOp", "n/add")
    model.signatures = {name: dataclasses.replace(signature, write=write)}
    runners = BatchingRunnerFactory(
        BatchingParameters(num_batch_threads=2, batching_policy=policy),
        find_unbatched=RowCheck(lambda *arguments: half(1, 2, 3)),
    )
    runner = runners.wrap(model, Path("/models/half/3"), "half/3")
    assert model.runs == []
    assert caplog.messages == [
        "/models/half/3: signature serving_default is served without batching: it updates a "
        "variable (AssignAddVariableOp, node n/add)"
    ]
    model.gate.clear()
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(contexts.run, runner, name, half(number)) for number in range(3)]
        assert model.has_begun.wait(10)
        model.gate.set()
        assert sorted(future.result(10)["y"] for future in running) == [2, 2.5, 3]
    assert len(model.runs) == 3
    runners.close()


def test_request_alone_is_run_where_it_comes_from(model: CountingModel) -> None:
    runners = BatchingRunnerFactory(BatchingParameters(num_batch_threads=1))
    runner = runners.wrap(model, Path("/models/half/3"))
    for _ in range(3):
        assert contexts.run(runner, "serving_default", half(1), timeout_ms=10_000)[
            "y"
        ].tolist() == [2.5]
    assert model.threads == [threading.current_thread()] * 3
    with pytest.raises(ModelExecutionError):
        contexts.run(runner, "failing", half(1))
    with NonBlocking():
        assert contexts.run(runner, "serving_default", half(1))["y"].tolist() == [2.5]
    runners.close()


def test_without_batching_nothing_stands_before_the_model(model: CountingModel) -> None:
    manager = Manager(lambda _: model)
    aspire(manager, "half", {3: Path("/models/half/3")})
    with manager.get_servable_handle("half") as servable:
        assert isinstance(servable.runner, DirectRunner)


def test_many_clients_of_a_served_model_get_their_own_answers(model: CountingModel) -> None:
    runners = BatchingRunnerFactory(
        BatchingParameters(
            max_batch_size=8,
            batch_timeout_micros=1000,
            num_batch_threads=2,
            max_enqueued_batches=100,
            allowed_batch_sizes=(2, 8),
        )
    )
    manager = Manager(lambda _: model, make_runner=runners.wrap)
    aspire(manager, "half", {3: Path("/models/half/3")})
    dataplane = WaitingDataPlane(manager)
    barrier = threading.Barrier(8)

    def ask(number: int) -> bool:
        barrier.wait(10)
        for step in range(20):
            x = half(*[number + step] * (1 + step % 3))
            y = dataplane.predict(ModelSpec("half"), lambda _, x=x: x).outputs["y"]
            if y.tolist() != [(number + step) / 2 + 2] * (1 + step % 3):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))
    assert {rows for _, rows in model.runs} <= {2, 8}
    assert len(model.runs) < 160
    manager.close(10)
    runners.close()
