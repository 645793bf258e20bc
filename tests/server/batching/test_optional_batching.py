"""With optional batching, a request that cannot share a batch is answered as without batching."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.batching.factory import BatchingRunnerFactory
from server.batching.runner import BatchingRunner
from server.servables.direct_runner import DirectRunner
from server.servables.servable import Array
from tests.server.batching.test_runner import FOUR, Clients, CountingModel, half
from tpuserve.errors import SignatureNotFound


class OneRow(CountingModel):
    """Returns the sum of all rows."""

    def _run(self, signature_name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": inputs["x"].sum(keepdims=True)}


class Choice:
    """The choice of a TPU metagraph."""

    tags = frozenset({"serve", "tpu"})


@pytest.mark.parametrize(
    ("name", "inputs", "outputs"),
    [
        ("serving_default", half(1, 2, 3, 4, 5), {"y": [2.5, 3, 3.5, 4, 4.5]}),
        ("serving_default", {"x": np.array(6, np.float32)}, {"y": 5}),
        (
            "two",
            {"a": np.array([1, 2], np.int32), "b": np.array([1], np.int32)},
            {"sum": [2, 3], "difference": [0, 1]},
        ),
    ],
    ids=["more rows than a batch may have", "no rows", "different numbers of rows"],
)
def test_a_request_that_fits_in_no_batch_runs_alone(
    name: str, inputs: Mapping[str, Array], outputs: Mapping[str, Any]
) -> None:
    clients = Clients(FOUR, CountingModel(), is_optional=True)
    answer = clients.start(inputs, name).result(10)
    assert {alias: array.tolist() for alias, array in answer.items()} == outputs
    clients.close()


def test_a_request_that_finds_no_other_runs_at_once_and_others_form_a_batch_meanwhile() -> None:
    model = CountingModel()
    clients = Clients(FOUR, model, is_optional=True)
    model.gate.clear()
    first = clients.start(half(1))
    assert model.has_begun.wait(10)
    others = [clients.send(half(1, 2)), clients.send(half(3, 4))]
    model.gate.set()
    assert first.result(10)["y"].tolist() == [2.5]
    assert [future.result(10)["y"].tolist() for future in others] == [[2.5, 3], [3.5, 4]]
    assert [rows for _, rows in model.runs] == [1, 4]
    assert isinstance(clients.runner, BatchingRunner)
    assert clients.runner.statistics["batch_sizes"] == {"1": 1, "3-4": 1}
    clients.close()


def test_requests_whose_outputs_are_no_rows_run_again_one_by_one() -> None:
    model = OneRow()
    clients = Clients(FOUR, model, is_optional=True)
    model.gate.clear()
    futures = [clients.start(half(1))]
    assert model.has_begun.wait(10)
    futures += [clients.send(half(1, 2)), clients.send(half(3, 4))]
    model.gate.set()
    assert [future.result(10)["y"].tolist() for future in futures] == [[1], [3], [7]]
    assert [rows for _, rows in model.runs] == [1, 4, 2, 2]
    clients.close()


def test_an_unknown_signature_is_refused() -> None:
    clients = Clients(FOUR, CountingModel(), is_optional=True)
    with pytest.raises(SignatureNotFound):
        clients.start(half(1), "three").result(10)
    clients.close()


def test_a_tpu_metagraph_is_not_batched(caplog: pytest.LogCaptureFixture) -> None:
    model = CountingModel()
    model.choice = Choice()  # type: ignore[assignment]
    caplog.set_level(logging.INFO)
    runners = BatchingRunnerFactory(FOUR, is_optional=True)
    assert isinstance(runners.wrap(model, Path("/models/half/3"), "half/3"), DirectRunner)
    assert "half/3: requests run without batches (a TPU metagraph is compiled" in caplog.text
