"""Names, types, labels and buckets are those of TensorFlow Serving or as Prometheus expects."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.metrics import Metrics
from server.metrics.collectors import MAX_SERIES
from server.metrics.timeline import Timeline
from tpuserve.errors import InvalidSetting

MODEL = "model_name,version,signature,metagraph"

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
    "tpuserve_version_state": ("gauge", "model_name,version,state"),
    "tpuserve_version_info": ("gauge", "model_name,version,metagraph,device"),
    "tpuserve_fallback_to_cpu": ("gauge", "model_name,version"),
    "tpuserve_requests_in_flight": ("gauge", ""),
    "tpuserve_resident_bytes": ("gauge", ""),
    "tpuserve_model_requests_in_flight": ("gauge", "model_name"),
    "tpuserve_queue_size": ("gauge", "model_name"),
    "tpuserve_batching_runs": ("gauge", "model_name,version"),
    "tpuserve_batching_max_runs": ("gauge", "model_name,version"),
    "tpuserve_requests_total": ("counter", MODEL + ",code"),
    "tpuserve_queue_duration_seconds": ("histogram", MODEL),
    "tpuserve_run_duration_seconds": ("histogram", MODEL),
    "tpuserve_request_duration_seconds": ("histogram", MODEL),
    "tpuserve_batch_size": ("histogram", MODEL),
    "tpuserve_requests_shed_total": ("counter", "model_name,reason"),
    "tpuserve_config_reloads_total": ("counter", "code"),
    "tpuserve_request_log_uploads_total": ("counter", "model_name,code"),
    "tpuserve_lazy_loads_total": ("counter", "model_name"),
    "tpuserve_model_bytes": ("gauge", "model_name"),
    "tpuserve_model_evictions_total": ("counter", "model_name"),
    "tpuserve_batching_requests_alone_total": ("counter", "model_name,version,reason"),
}


@pytest.fixture
def metrics() -> Metrics:
    """Return metrics in which one event of each kind was recorded."""
    metrics = Metrics()
    metrics.request_done("half", "Predict", "GRPC", "OK", 15)
    metrics.run_measured("half", "Predict", 12)
    metrics.examples_received("half", 3)
    metrics.request_logged("half", "OK")
    metrics.warmed_up("/models/half/3", "OK", 99)
    metrics.warm_up_record_read("/models/half/3", "OK")
    metrics.queued("pool", 120)
    metrics.batched_request(3)
    metrics.batch_run(4, 1)
    metrics.watch_provenance(lambda: {("half", "3", "7f-3a"): 1})
    metrics.watch_states(lambda: {("half", "3", "AVAILABLE"): 1})
    metrics.watch_fallbacks(lambda: {("half", "3"): 0})
    metrics.watch_metagraphs(lambda: {("half", "3", "serve", "CPU"): 1})
    metrics.watch_in_flight(lambda: 2)
    metrics.watch_memory(lambda: 1 << 20)
    metrics.watch_model_requests(lambda: {("half",): 2})
    metrics.watch_model_bytes(lambda: {("half",): 500_000})
    metrics.lazily_loaded("half")
    metrics.evicted("half")
    metrics.watch_queue(lambda: {("half",): 5, ("other",): 1})
    metrics.watch_batching(lambda: {("half", "3"): (1, 2)})
    metrics.request_shed("half", "queue full")
    metrics.reloaded("OK")
    metrics.request_log_uploaded("half", "OK")
    metrics.ran_alone("half", "3", "idle_server")
    metrics.request_ended(timeline(), "OK")
    metrics.model_run(("half", "3", "serving_default", "serve"), 4)
    return metrics


def timeline() -> Timeline:
    """Return the timeline of a request that took 2 s: 0.5 s in queues, 1 s in the model's run."""
    second = 1_000_000_000
    timeline = Timeline(second)
    timeline.queued_ns = timeline.decoding_ns = timeline.started_ns
    timeline.record_version("half", 3, "serving_default", "serve")
    timeline.decoded_ns = 5 * second // 4
    timeline.running_ns = 7 * second // 4
    timeline.ran_ns = 11 * second // 4
    timeline.ended_ns = 3 * second
    return timeline


def lines(metrics: Metrics) -> list[str]:
    return metrics.exposition().decode().splitlines()


def test_every_metric_has_its_kind_and_labels(metrics: Metrics) -> None:
    descriptions: dict[str, tuple[str, str]] = {}
    name = kind = ""
    for line in lines(metrics):
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            continue
        match = re.fullmatch(r"([:\w]+?)(_bucket|_sum|_count)?(?:\{(.*)\})? \S+", line)
        assert match is not None, line
        labels = ",".join(
            label for label in re.findall(r'(\w+)="', match[3] or "") if label != "le"
        )
        assert descriptions.setdefault(name, (kind, labels)) == (kind, labels)
    assert descriptions == {
        name: (kind, ",".join(sorted(labels.split(","))))
        for name, (kind, labels) in EXPECTED.items()
    }


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


def test_a_dropped_label_that_no_metric_has_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="'versoin', which no metric has.*version"):
        Metrics(["versoin"])


def test_latency_is_kept_of_what_went_well_alone(metrics: Metrics) -> None:
    metrics.request_done("half", "Predict", "GRPC", "NOT_FOUND", 1)
    page = lines(metrics)
    assert ':tensorflow:serving:request_count{model_name="half",status="NOT_FOUND"} 1' in page
    assert (
        ':tensorflow:serving:request_latency_count{API="Predict",entrypoint="GRPC",'
        'model_name="half"} 1'
    ) in page


def test_durations_are_seconds_of_successful_requests(metrics: Metrics) -> None:
    failed = Timeline()
    failed.end()
    metrics.request_ended(failed, "NOT_FOUND")
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if sample.labels.get("model_name") == "half"
    }
    for name, seconds in (("request", 2), ("queue", 0.5), ("run", 1)):
        assert samples[f"tpuserve_{name}_duration_seconds_count"] == 1
        assert samples[f"tpuserve_{name}_duration_seconds_sum"] == seconds
    assert samples["tpuserve_requests_total"] == 1
    assert (
        'tpuserve_requests_total{code="NOT_FOUND",metagraph="",model_name="",signature="",version=""}'
        " 1"
    ) in lines(metrics)


def test_prometheus_can_read_every_metric(metrics: Metrics) -> None:
    families = list(text_string_to_metric_families(metrics.exposition().decode()))
    own = [family for family in families if family.name.startswith("tpuserve_")]
    names = {name.removesuffix("_total") for name in EXPECTED if name.startswith("tpuserve_")}
    assert {family.name for family in own} == names
    assert all(family.documentation.endswith(".") for family in own)


def test_queue_size_adds_up_the_queues_before_and_in_batching(metrics: Metrics) -> None:
    metrics.watch_queue(lambda: {("half",): 2})
    assert 'tpuserve_queue_size{model_name="half"} 7' in lines(metrics)
    assert 'tpuserve_queue_size{model_name="other"} 1' in lines(metrics)


def test_counters_can_be_read_by_the_names_of_the_registry(metrics: Metrics) -> None:
    assert metrics.first_value("/tensorflow/serving/request_count") == 1
    assert metrics.first_value("/tensorflow/serving/request_latency") is None
    assert metrics.first_value("/other") is None


def test_two_servers_in_one_process_do_not_mix(metrics: Metrics) -> None:
    assert Metrics().first_value("/tensorflow/serving/request_count") == 0


def test_names_of_unknown_models_leave_series_for_configured_models(metrics: Metrics) -> None:
    metrics.limit_unknown_models(lambda model: model == "half")

    def record(model: str, status: str) -> None:
        timeline = Timeline()
        timeline.model = model
        metrics.request_done(model, "Predict", "GRPC", status, 1)
        metrics.request_ended(timeline, status)

    for number in range(MAX_SERIES + 5):
        record(f"made-up-{number}", "NOT_FOUND")
    for model in ("half", ""):
        record(model, "ABORTED")
    page = lines(metrics)
    for line in (
        ':tensorflow:serving:request_count{model_name="MODEL",status="CODE"} 1',
        'tpuserve_requests_total{code="CODE",metagraph="",model_name="MODEL",signature="",'
        'version=""} 1',
    ):
        for model, code in (("made-up-0", "NOT_FOUND"), ("half", "ABORTED"), ("", "ABORTED")):
            assert line.replace("MODEL", model).replace("CODE", code) in page
        pattern = re.escape(line).replace("MODEL", r"made\-up\-\d+").replace("CODE", "NOT_FOUND")
        assert sum(bool(re.fullmatch(pattern, line)) for line in page) < MAX_SERIES
