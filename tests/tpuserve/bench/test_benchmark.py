"""No full garbage collection of this process counts as latency of the server."""

import gc

import pytest

from tests.tpuserve.bench.test_server_example import BRIEFLY, METADATA
from tests.tpuserve.client.reply_servers import Answer, over_http
from tpuserve.bench import benchmark
from tpuserve.bench.benchmark import Target
from tpuserve.bench.inputs import Requests
from tpuserve.bench.load import Load

pytestmark = pytest.mark.slow


def test_measurement_leaves_the_garbage_collector_as_it_was() -> None:
    gc.collect()
    # Exclude the present objects from collections, as tpuserve excludes TensorFlow's objects.
    gc.freeze()
    num_frozen = gc.get_freeze_count()
    thresholds = gc.get_threshold()
    full_thresholds: list[int] = []
    with over_http(METADATA, Answer(404), Answer(200, b'{"outputs": []}')) as server:
        target = Target(server.url, "other", "v2")
        requests: Requests = benchmark.choose_requests(target, benchmark.InputChoice())
        benchmark.run_benchmark(
            target,
            requests,
            [Load(concurrency=2)],
            BRIEFLY,
            lambda done, total, step: full_thresholds.append(gc.get_threshold()[2]),
        )
    assert set(full_thresholds) == {2**31 - 1}
    assert gc.get_threshold() == thresholds
    # Objects that the test has deleted are no longer counted.
    assert gc.get_freeze_count() > num_frozen / 2
