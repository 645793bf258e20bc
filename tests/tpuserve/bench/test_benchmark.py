"""No full garbage collection of this process counts as latency of the server."""

import gc

from tests.tpuserve.client.reply_servers import Answer, over_http
from tpuserve.bench import benchmark
from tpuserve.bench.benchmark import Target
from tpuserve.bench.inputs import Requests
from tpuserve.bench.load import Load
from tpuserve.bench.windows import Procedure

METADATA = Answer(
    200, b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [-1]}], "outputs": []}'
)


def test_measurement_leaves_the_garbage_collector_as_it_was() -> None:
    gc.collect()
    # Exclude the present objects from collections, as tpuserve excludes TensorFlow's objects.
    gc.freeze()
    num_frozen = gc.get_freeze_count()
    thresholds = gc.get_threshold()
    generations: list[tuple[int, int]] = []
    with over_http(METADATA, Answer(404), Answer(200, b'{"outputs": []}')) as server:
        target = Target(server.url, "other", "v2")
        requests: Requests = benchmark.choose_requests(target, benchmark.InputChoice())
        benchmark.run_benchmark(
            target,
            requests,
            [Load(concurrency=2)],
            Procedure(window_s=0.05, max_windows=500, tolerance=1000, warm_up_s=0.01),
            lambda done, total, step: generations.append(gc.get_threshold()[1:]),
        )
    assert {full for _, full in generations} == {2**31 - 1}
    assert gc.get_threshold() == thresholds
    # Objects that the test has deleted are no longer counted.
    assert gc.get_freeze_count() > num_frozen / 2
