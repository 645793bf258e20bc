"""Names, types, labels and buckets of the metrics are TensorFlow Serving's."""

import re

import pytest

from server.metrics import Metrics

# Name of a metric → its type and its labels.
EXPECTED = {
    ":tensorflow:serving:request_count": ("counter", "model_name,status"),
    ":tensorflow:serving:request_latency": ("histogram", "model_name,API,entrypoint"),
    ":tensorflow:serving:runtime_latency": ("histogram", "model_name,API,runtime"),
    ":tensorflow:serving:request_example_counts": ("histogram", "model"),
    ":tensorflow:serving:request_example_count_total": ("counter", "model"),
    ":tensorflow:serving:request_log_count": ("counter", "model_name,status_code"),
    ":tensorflow:serving:model_warmup_latency": ("histogram", "model_path,status"),
    ":tensorflow:serving:model_warmup_records_read": ("counter", "model_path,status"),
    ":tensorflow:serving:mlmd_map": ("gauge", "model_name,version,uuid"),
    ":tensorflow:serving:batching_session:queuing_latency": ("histogram", "thread_pool_name"),
    ":tensorflow:serving:batching_session:wrapped_run_count": ("counter", ""),
    ":tensorflow:serving:batching_session:padding_size": ("histogram", "execution_batch_size"),
    ":tensorflow:serving:batching_session:input_batch_size": ("histogram", ""),
    ":tensorflow:serving:batching_session:processed_batch_size": ("histogram", ""),
    ":tpuserve:version_state": ("gauge", "model_name,version,state"),
    ":tpuserve:fallback_to_cpu": ("gauge", "model_name,version"),
    ":tpuserve:requests_in_flight": ("gauge", ""),
    ":tpuserve:batching_queue_length": ("gauge", "thread_pool_name"),
}


@pytest.fixture
def metrics() -> Metrics:
    """Return metrics in which one event of each kind was recorded."""
    metrics = Metrics()
    metrics.request_done("half", "Predict", "GRPC", "OK", 15)
    metrics.runtime("half", "Predict", 12)
    metrics.examples("half", 3)
    metrics.request_logged("half", "OK")
    metrics.warmed_up("/models/half/3", "OK", 99)
    metrics.warm_up_record_read("/models/half/3", "OK")
    metrics.queued("pool", 120)
    metrics.batched_request(3)
    metrics.batch_run(4, 1)
    metrics.watch_provenance(lambda: {("half", "3", "7f-3a"): 1})
    metrics.watch_states(lambda: {("half", "3", "AVAILABLE"): 1})
    metrics.watch_fallbacks(lambda: {("half", "3"): 0})
    metrics.watch_in_flight(lambda: 2)
    metrics.watch_queue("pool", lambda: 5)
    return metrics


def lines(metrics: Metrics) -> list[str]:
    return metrics.exposition().decode().splitlines()


def test_every_metric_has_its_kind_and_labels(metrics: Metrics) -> None:
    found: dict[str, tuple[str, str]] = {}
    name = kind = ""
    for line in lines(metrics):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            continue
        match = re.fullmatch(r"([:\w]+?)(_bucket|_sum|_count)?\{(.*)\} \S+", line)
        assert match is not None, line
        labels = ",".join(each for each in re.findall(r'(\w+)="', match[3]) if each != "le")
        assert found.setdefault(name, (kind, labels)) == (kind, labels)
    assert found == EXPECTED


@pytest.mark.parametrize(
    ("metric", "count", "first", "last"),
    [
        ("request_latency", 33, "10", "1.47476e+09"),
        ("runtime_latency", 33, "10", "1.47476e+09"),
        ("request_example_counts", 15, "1", "16384"),
        ("batching_session:queuing_latency", 52, "100", "1.09205e+06"),
        ("batching_session:padding_size", 14, "1", "8192"),
        ("batching_session:input_batch_size", 14, "1", "8192"),
        ("batching_session:processed_batch_size", 14, "1", "8192"),
    ],
)
def test_buckets(metrics: Metrics, metric: str, count: int, first: str, last: str) -> None:
    start = f":tensorflow:serving:{metric}_bucket{{"
    bounds = [re.findall('le="([^"]*)"', line)[0] for line in lines(metrics) if start in line]
    assert (len(bounds), bounds[0], bounds[-2], bounds[-1]) == (count + 1, first, last, "+Inf")


def test_latency_is_kept_of_what_went_well_alone(metrics: Metrics) -> None:
    metrics.request_done("half", "Predict", "GRPC", "NOT_FOUND", 1)
    found = lines(metrics)
    assert ':tensorflow:serving:request_count{model_name="half",status="NOT_FOUND"} 1' in found
    assert (
        ':tensorflow:serving:request_latency_count{model_name="half",API="Predict",'
        'entrypoint="GRPC"} 1'
    ) in found


def test_counters_can_be_read_by_the_names_of_the_registry(metrics: Metrics) -> None:
    assert metrics.first_value("/tensorflow/serving/request_count") == 1
    assert metrics.first_value("/tensorflow/serving/request_latency") is None
    assert metrics.first_value("/other") is None


def test_two_servers_in_one_process_do_not_mix(metrics: Metrics) -> None:
    assert Metrics().first_value("/tensorflow/serving/request_count") == 0
