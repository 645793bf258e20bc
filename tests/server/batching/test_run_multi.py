"""Requests for several signatures of a model share a batch if the signatures are the same."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.admission.cancellation import Cancellation
from server.batching.factory import BatchingRunnerFactory
from server.config.batching_parameters import BatchingParameters
from server.servables import pending
from server.servables.servable import Array, InferenceRunner
from tests.server import contexts
from tests.server.fakes import FakeModel

# With these parameters a batch runs when it has four rows; the timeout is longer than the test.
FOUR = BatchingParameters(
    max_batch_size=4, batch_timeout_micros=60_000_000, num_batch_threads=1, thread_pool_name="pool"
)
TWO = {"serving_default": ["y"], "ratio": ["y"]}


class OneBySignature(FakeModel):
    """Records the signature and the number of rows of each run."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[tuple[Any, int]] = []

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        output_names: Sequence[str] | None = None,
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, Array]:
        self.runs.append((signature_name, len(inputs["x"])))
        return super().run(
            signature_name,
            inputs,
            output_names,
            timeout_ms=timeout_ms,
            cancellation=cancellation,
        )


class AllAtOnce(OneBySignature):
    def run_multi(
        self,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        *,
        timeout_ms: float | None = None,
        cancellation: Cancellation | None = None,
    ) -> dict[str, dict[str, Array]]:
        self.runs.append((tuple(output_names), len(inputs["x"])))
        return {name: self._run(name, inputs) for name in output_names}


def ask(runner: InferenceRunner, output_names: Mapping[str, Sequence[str]], *values: float) -> Any:
    context = contexts.make_context(60_000)
    inputs = {"x": np.array(values, np.float32)}
    return pending.wait(runner.start_multi(context, output_names, inputs))


@pytest.mark.parametrize(
    ("model", "runs"),
    [
        (AllAtOnce(), [(("ratio", "serving_default"), 4)]),
        (OneBySignature(), [("serving_default", 4), ("ratio", 4)]),
    ],
)
def test_batch_is_made_of_requests_for_the_same_signatures(
    model: OneBySignature, runs: list[Any]
) -> None:
    runners = BatchingRunnerFactory(FOUR)
    runner = runners.wrap(model, Path("/models/half/3"))
    swapped = dict(reversed(TWO.items())) if isinstance(model, AllAtOnce) else TWO
    with ThreadPoolExecutor(2) as pool:
        answers: list[Future[Any]] = [
            pool.submit(ask, runner, TWO, 1, 2),
            pool.submit(ask, runner, swapped, 4, 8),
        ]
        first, second = (future.result() for future in answers)
    runners.close()
    assert model.runs == runs
    assert first["serving_default"]["y"].tolist() == [2.5, 3.0]
    assert first["ratio"]["y"].tolist() == [1.0, 0.5]
    assert list(second) == list(swapped)
    assert second["serving_default"]["y"].tolist() == [4.0, 6.0]
    assert second["ratio"]["y"].tolist() == [0.25, 0.125]
