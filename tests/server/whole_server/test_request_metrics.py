"""The metrics of requests have the model, version, signature and metagraph, and count each once."""

from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.frontends.grpc import clients
from tests.server.whole_server.fake_server import SECONDS, FakeServer, wait_until

pytestmark = pytest.mark.slow

VERSION = {"model_name": "half", "version": "3", "metagraph": "serve"}
DEFAULT = VERSION | {"signature": "serving_default"}


@pytest.fixture(
    scope="module",
    params=[{}, {"enable_batching": True}],
    ids=["one process", "batching"],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FakeServer]:
    """Return a server that has answered four requests with 9 rows, and refused five."""
    flags: dict[str, Any] = request.param
    server = FakeServer(tmp_path_factory.mktemp("metrics"), **flags)
    model_url = f"{server.url}/v1/models/half"
    for body in ('{"instances": [1, 2, 3]}', '{"instances": [4]}', "{", '{"inputs": "text"}'):
        httpx.post(f"{model_url}:predict", content=body, timeout=SECONDS)
    httpx.get(f"{model_url}/metadata", timeout=SECONDS)
    body = '{"signature_name": "failing", "instances": [1]}'
    httpx.post(f"{model_url}:predict", content=body, timeout=SECONDS)
    tensors = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}
    httpx.post(f"{server.url}/v2/models/half/infer", json=tensors, timeout=SECONDS)
    httpx.post(f"{server.url}/v1/models/none:predict", content=body, timeout=SECONDS)
    with clients.connect(server.rpc) as client:
        client.predict(x=[1.0, 2.0, 3.0])
        with pytest.raises(grpc.RpcError):
            client.predict(y=[1.0])
    yield server
    server.kill()


@pytest.fixture(scope="module")
def samples(server: FakeServer) -> list[tuple[str, dict[str, str], float]]:
    """Return the name, the labels and the value of each sample on the page of metrics."""

    def read() -> list[tuple[str, dict[str, str], float]]:
        page = httpx.get(f"{server.url}/metrics", timeout=SECONDS).text
        families = text_string_to_metric_families(page)
        return [
            (sample.name, dict(sample.labels), sample.value)
            for family in families
            for sample in family.samples
        ]

    # A request leaves its model's queue just after its response was sent.
    wait_until(lambda: not any(values(read(), "tpuserve_model_requests_in_flight")))
    return read()


def values(samples: Any, name: str, **labels: str) -> list[float]:
    return [
        value
        for sample_name, sample_labels, value in samples
        if sample_name == name and labels.items() <= sample_labels.items()
    ]


def test_each_request_is_counted_once_by_its_version_and_code(samples: Any) -> None:
    assert values(samples, "tpuserve_requests_total", code="OK") == [4]
    assert values(samples, "tpuserve_requests_total", code="OK", **DEFAULT) == [4]
    assert sum(values(samples, "tpuserve_requests_total", code="INVALID_ARGUMENT")) == 3
    assert values(samples, "tpuserve_requests_total", code="NOT_FOUND", model_name="none") == [1]
    assert sum(values(samples, "tpuserve_requests_total", model_name="half")) == 8


def test_durations_are_recorded_for_each_successful_request(samples: Any) -> None:
    seconds = {}
    for stage in ("queue", "run", "request"):
        name = f"tpuserve_{stage}_duration_seconds"
        assert values(samples, f"{name}_count", **DEFAULT) == [4]
        assert sum(values(samples, f"{name}_count")) == 4
        (seconds[stage],) = values(samples, f"{name}_sum", **DEFAULT)
        assert seconds[stage] > 0
    assert seconds["queue"] + seconds["run"] < seconds["request"]


def test_batch_sizes_are_the_rows_of_the_runs(samples: Any) -> None:
    assert values(samples, "tpuserve_batch_size_sum", **DEFAULT) == [9]
    assert values(samples, "tpuserve_batch_size_count", **DEFAULT) == [4]


def test_statistics_of_triton_have_every_stage(server: FakeServer) -> None:
    def read() -> Any:
        url = f"{server.url}/v2/models/half/stats"
        return httpx.get(url, timeout=SECONDS).json()["model_stats"][0]

    def is_complete() -> bool:
        # A request's encoding is recorded just after its response was sent.
        return all(size["compute_output"]["ns"] for size in read()["batch_stats"])

    wait_until(is_complete)
    statistics = read()
    assert (statistics["inference_count"], statistics["execution_count"]) == (9, 4)
    sizes = {size.pop("batch_size"): size for size in statistics["batch_stats"]}
    counts = {rows: {stage["count"] for stage in size.values()} for rows, size in sizes.items()}
    assert counts == {1: {1}, 2: {1}, 3: {2}}
    stages = statistics["inference_stats"]
    for name in ("compute_input", "compute_output"):
        assert sum(size[name]["ns"] for size in sizes.values()) == stages[name]["ns"] > 0
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    assert stages["success"]["ns"] == sum(stages[part]["ns"] for part in parts)


def test_idle_server_has_no_request_in_its_queues(samples: Any) -> None:
    assert values(samples, "tpuserve_requests_in_flight") == [0]
    assert set(values(samples, "tpuserve_queue_size", model_name="half")) <= {0}
    assert set(values(samples, "tpuserve_model_requests_in_flight")) == {0}


def test_version_and_its_device_are_told(samples: Any) -> None:
    assert values(samples, "tpuserve_version_info", device="CPU", **VERSION) == [1]
