"""The run of a batch stops when none of its requests waits any more, even one that never ends."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.admission.cancellation import Cancellation
from server.batching.factory import BatchingRunnerFactory
from server.config.batching_parameters import BatchingParameters
from server.servables.pending import Pending
from tests.server import contexts
from tpuserve.errors import Cancelled, DeadlineExceeded

ENDLESS = np.array([1e30], np.float32)
ENDING = np.array([5], np.float32)
# Parameters with which two rows fill a batch, and one thread runs all batches.
TWO = BatchingParameters(
    max_batch_size=2, batch_timeout_micros=60_000_000, num_batch_threads=1, thread_pool_name="pool"
)


def export(directory: Path) -> None:
    """Export a model that counts from 0 in steps of 1 up to the largest element of its input n.

    The signature "count" returns the reached number as y. The signature "steps" returns the number
    of steps of all runs so far.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        steps = v1.get_variable("steps", [], tf.int64, v1.zeros_initializer(), use_resource=True)
        n = v1.placeholder(tf.float32, [None], name="n")

        def count(y: Any) -> Any:
            with tf.control_dependencies([steps.assign_add(1)]):
                return tf.minimum(y + 1, 1e20)

        (y,) = tf.while_loop(lambda y: tf.reduce_any(y < n), count, [tf.zeros_like(n)])
        session.run(v1.global_variables_initializer())
        outputs = {
            "count": {"y": tf.identity(y)},
            "steps": {"steps": tf.identity(steps.read_value())},
        }
        build = v1.saved_model.predict_signature_def
        builder = v1.saved_model.Builder(str(directory))
        builder.add_meta_graph_and_variables(
            session, ["serve"], {name: build({"n": n}, dtype) for name, dtype in outputs.items()}
        )
        builder.save()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tpuserve.runtime import loader

    directory = tmp_path_factory.mktemp("model") / "1"
    export(directory)
    model: Any = loader.load(directory)
    # The steps are counted for the test alone, so let the model pass for one that only reads.
    model.signatures = {
        name: dataclasses.replace(signature, write=None)
        for name, signature in model.signatures.items()
    }
    yield model
    model.close()


@pytest.fixture
def runner(model: Any) -> Iterator[Any]:
    runners = BatchingRunnerFactory(TWO)
    yield runners.wrap(model, Path("/models/half/1"))
    runners.close()


def num_steps(model: Any) -> int:
    return int(model.run("steps", {"n": ENDING})["steps"])


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def start(runner: Any, n: Any, **how: Any) -> Pending[Any]:
    pending = contexts.start(runner, "count", {"n": n}, **how)
    assert isinstance(pending, Pending)
    return pending


def assert_thread_is_free(runner: Any) -> None:
    """Check that the only thread has ended the previous batch: run a further batch."""
    batch = [start(runner, ENDING, timeout_ms=30_000) for _ in range(2)]
    assert [pending.finish()["y"].tolist() for pending in batch] == [[5], [5]]


def test_endless_batch_stops_when_all_its_requests_are_cancelled(model: Any, runner: Any) -> None:
    before, tokens = num_steps(model), [Cancellation(), Cancellation()]
    batch = [start(runner, ENDLESS, cancellation=token) for token in tokens]
    wait_until(lambda: num_steps(model) > before)
    tokens[0].cancel()
    with pytest.raises(Cancelled):
        batch[0].finish()
    steps = num_steps(model)
    wait_until(lambda: num_steps(model) > steps)  # The other request keeps the run going.
    tokens[1].cancel()
    with pytest.raises(Cancelled):
        batch[1].finish()
    assert_thread_is_free(runner)


def test_endless_batch_stops_when_its_requests_end_in_different_ways(
    model: Any, runner: Any
) -> None:
    before, token = num_steps(model), Cancellation()
    cancelled = start(runner, ENDLESS, cancellation=token)
    late = start(runner, ENDLESS, timeout_ms=500)
    wait_until(lambda: num_steps(model) > before)
    token.cancel()
    for pending, error in ((cancelled, Cancelled), (late, DeadlineExceeded)):
        with pytest.raises(error):
            pending.finish()
    assert_thread_is_free(runner)


def test_endless_request_that_runs_in_its_own_thread_is_stopped(model: Any) -> None:
    parameters = BatchingParameters(num_batch_threads=1, batching_policy="continuous")
    runners = BatchingRunnerFactory(parameters)
    runner: Any = runners.wrap(model, Path("/models/half/1"))
    before, token = num_steps(model), Cancellation()

    def cancel_once_it_runs() -> None:
        wait_until(lambda: num_steps(model) > before)
        token.cancel()

    thread = threading.Thread(target=cancel_once_it_runs)
    thread.start()
    with pytest.raises(Cancelled):
        contexts.run(runner, "count", {"n": ENDLESS}, cancellation=token)
    thread.join()
    runners.close()
