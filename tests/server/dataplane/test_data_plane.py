"""The data plane counts, limits and logs requests, reports states and reloads the configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.admission.cancellation import Cancellation
from server.admission.nonblocking import NonBlocking, WouldBlock
from server.dataplane import ModelSpec
from server.metrics import Metrics
from server.models.manager import Manager
from server.servables.servable import Array, State
from tests.server import contexts
from tests.server.aspired_versions import aspire
from tests.server.dataplane.models import ExamplesModel, serve
from tests.server.fakes import FakeLoader
from tests.server.waiting_data_plane import WaitingDataPlane
from tpuserve.errors import (
    BasePathNotFound,
    Cancelled,
    DamagedSavedModel,
    InvalidInput,
    UnsupportedModel,
)

HALF = ModelSpec("half")
M = ModelSpec("m")
X = {"x": np.array([1, 2, 5], np.float32)}
REGRESS = "tensorflow/serving/regress"


def read_x(_: Any) -> Mapping[str, Array]:
    return X


def lines(metrics: Metrics, *parts: str) -> list[str]:
    all_lines = metrics.exposition().decode().splitlines()
    return [line for line in all_lines if all(part in line for part in parts)]


def test_runs_are_timed_and_requests_left_to_the_faces_to_count(manager: Manager) -> None:
    metrics = Metrics()
    dataplane = WaitingDataPlane(manager, metrics=metrics)
    dataplane.predict(HALF, read_x)
    dataplane.predict(HALF, read_x)
    assert lines(metrics, "runtime_latency_count") == [
        ':tensorflow:serving:runtime_latency_count{API="Predict",model_name="half",runtime="TF1"} 2'
    ]
    assert lines(metrics, ":request_count{") == []


def test_multi_inference_counts_examples() -> None:
    metrics = Metrics()
    dataplane = serve(ExamplesModel(), metrics=metrics)
    dataplane.multi_inference([(ModelSpec("m", signature_name="regress"), REGRESS)], [b"a", b"b"])
    dataplane.classify(M, [b"a"])
    assert lines(metrics, "counts_count") + lines(metrics, "counts_sum") == [
        ':tensorflow:serving:request_example_counts_count{model="m"} 1',
        ':tensorflow:serving:request_example_counts_sum{model="m"} 2',
    ]
    assert lines(metrics, "request_example_count_total{") == [
        ':tensorflow:serving:request_example_count_total{model="m"} 2'
    ]
    assert lines(metrics, ":request_count{") == []
    assert len(lines(metrics, 'API="MultiInference"', "_count{")) == 1


def test_examples_of_a_run_that_fails_count_and_those_of_one_that_comes_again_do_not() -> None:
    metrics = Metrics()
    dataplane = serve(ExamplesModel(), metrics=metrics)
    tasks = [(ModelSpec("m", signature_name="regress"), REGRESS)]
    with NonBlocking(may_run=False), pytest.raises(WouldBlock):
        dataplane.multi_inference(tasks, [b"a"])
    assert lines(metrics, "request_example_count_total{") == []
    cancelled = Cancellation()
    cancelled.cancel()
    with pytest.raises(Cancelled):
        dataplane.multi_inference(
            tasks, [b"a", b"b"], context=contexts.make_context(cancellation=cancelled)
        )
    assert lines(metrics, "request_example_count_total{") == [
        ':tensorflow:serving:request_example_count_total{model="m"} 2'
    ]


def test_multi_inference_is_in_the_statistics_of_the_version() -> None:
    dataplane = serve(ExamplesModel())
    tasks = [(ModelSpec("m", signature_name="regress"), REGRESS)]
    dataplane.multi_inference(tasks, [b"a", b"b"])
    cancelled = Cancellation()
    cancelled.cancel()
    with pytest.raises(Cancelled):
        dataplane.multi_inference(
            tasks, [b"a"], context=contexts.make_context(cancellation=cancelled)
        )
    inferences = dataplane.statistics(M).inferences
    assert (inferences.num_successes, inferences.num_failures) == (1, 1)
    assert (inferences.num_rows, inferences.num_runs) == (2, 1)


def test_time_that_a_request_has_is_given_to_the_model(
    dataplane: WaitingDataPlane, loader: FakeLoader
) -> None:
    dataplane.predict(HALF, read_x, context=contexts.make_context(60_000))
    # The time in the queue of the engine process counts against the limit.
    assert 30_000 < (loader.models[3].timeout_ms or 0) <= 60_000


def test_cancelled_request_is_not_run(dataplane: WaitingDataPlane, loader: FakeLoader) -> None:
    cancellation = Cancellation()
    dataplane.predict(HALF, read_x, context=contexts.make_context(cancellation=cancellation))
    loader.models[3].has_begun.clear()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        dataplane.predict(HALF, read_x, context=contexts.make_context(cancellation=cancellation))
    assert not loader.models[3].has_begun.is_set()


def test_cancelled_request_for_examples_is_not_run() -> None:
    model = ExamplesModel()
    dataplane, cancellation = serve(model), Cancellation()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        dataplane.classify(M, [b"a"], context=contexts.make_context(cancellation=cancellation))
    with pytest.raises(Cancelled):
        dataplane.regress(
            ModelSpec("m", signature_name="regress"),
            [b"a"],
            context=contexts.make_context(cancellation=cancellation),
        )
    with pytest.raises(Cancelled):
        dataplane.multi_inference(
            [(ModelSpec("m", signature_name="regress"), REGRESS)],
            [b"a"],
            context=contexts.make_context(cancellation=cancellation),
        )
    assert model.runs == []


def test_metadata_gives_the_signatures_whole(
    dataplane: WaitingDataPlane, loader: FakeLoader
) -> None:
    metadata = dataplane.metadata(HALF, ["signature_def"])
    assert (metadata.model, metadata.version) == ("half", 3)
    assert metadata.signature_defs == loader.models[3].signature_defs


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([], "GetModelMetadataRequest must specify at least one metadata_field"),
        (["signature_def", "other"], "Metadata field other is not supported"),
    ],
)
def test_other_metadata_is_refused(
    dataplane: WaitingDataPlane, fields: list[str], text: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        dataplane.metadata(ModelSpec("unknown"), fields)
    assert str(caught.value) == text


def test_all_models_are_listed(dataplane: WaitingDataPlane, manager: Manager) -> None:
    aspire(manager, "other", {1: Path("/models/other/1")})
    states = {
        name: [(version.version, version.state) for version in versions]
        for name, versions in dataplane.models().items()
    }
    assert states == {"half": [(3, State.AVAILABLE)], "other": [(1, State.AVAILABLE)]}


def test_list_leaves_out_what_was_unloaded_and_tells_why_a_model_is_missing(
    manager: Manager, loader: FakeLoader
) -> None:
    names = ["half", "bad", "missing"]
    dataplane = WaitingDataPlane(manager, configured=lambda: names)
    loader.failures[1] = DamagedSavedModel("cut short")
    aspire(manager, "bad", {1: Path("/models/bad/1")})
    manager.set_unavailable_reason("missing", BasePathNotFound("no directory"))
    aspire(manager, "half", {4: Path("/models/half/4")})
    listed = dataplane.list_models()
    assert sorted(listed) == sorted(names)
    assert [version.version for version in listed["half"].versions] == [4]
    assert [str(version.error) for version in listed["bad"].versions] == ["cut short"]
    assert str(listed["missing"].reason) == "no directory"
    aspire(manager, "bad", {})
    aspire(manager, "half", {})
    names.clear()
    assert list(dataplane.list_models()) == ["missing"]
    assert not dataplane.is_available


def test_configuration_goes_to_who_can_make_it_so(manager: Manager) -> None:
    configs: list[object] = []
    WaitingDataPlane(manager, reload=configs.append).reload("config")
    assert configs == ["config"]


def test_fixed_configuration_cannot_be_reloaded(dataplane: WaitingDataPlane) -> None:
    with pytest.raises(UnsupportedModel):
        dataplane.reload("config")


class Journal:
    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []

    def should_log(self, model: str) -> bool:
        return model == "m"

    def predict(self, *entry: Any) -> None:
        self.entries.append(("predict", *entry))

    def classify(self, *entry: Any) -> None:
        self.entries.append(("classify", *entry))

    def regress(self, *entry: Any) -> None:
        self.entries.append(("regress", *entry))

    def multi_inference(self, *entry: Any) -> None:
        self.entries.append(("multi_inference", *entry))


def test_what_is_answered_is_written_down_where_that_is_wanted() -> None:
    journal = Journal()
    manager = Manager(lambda _: ExamplesModel())
    aspire(manager, "m", {3: Path("/models/m/3")})
    aspire(manager, "n", {3: Path("/models/n/3")})
    dataplane = WaitingDataPlane(manager, request_log=journal)
    regress = ModelSpec("m", signature_name="regress")
    fed = {"inputs": np.array([b"a"], object)}
    answers = [
        dataplane.predict(regress, lambda _: fed, ["outputs"]),
        dataplane.classify(M, [b"a"]),
        dataplane.regress(regress, [b"a"]),
        dataplane.multi_inference([(regress, REGRESS)], [b"a"]),
    ]
    dataplane.classify(ModelSpec("n"), [b"a"])
    with pytest.raises(InvalidInput):
        dataplane.classify(M, [])
    assert journal.entries == [
        ("predict", answers[0], fed, ["outputs"]),
        ("classify", answers[1], [b"a"]),
        ("regress", answers[2], [b"a"]),
        ("multi_inference", [(regress, REGRESS)], answers[3], [b"a"]),
    ]
