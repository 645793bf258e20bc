"""NVIDIA's perf_analyzer, a C++ client that is not TensorFlow Serving's, can use the server.

tools/perf_analyzer.py says where the program comes from. benchmarks/serve/clients/perf_analyzer.py
measures whether its windows are stable, which no test can promise on a busy machine.
"""

from pathlib import Path

import pytest

from server.dataplane import DataPlane
from server.models.manager import Manager
from tests import models
from tests.server.aspired_versions import aspire
from tests.server.frontends.grpc import clients
from tools import perf_analyzer

pytestmark = pytest.mark.slow


@pytest.mark.skipif(
    perf_analyzer.find_perf_analyzer() is None,
    reason="perf_analyzer is not there; see tools/perf_analyzer.py",
)
def test_perf_analyzer_reads_the_metadata_and_is_answered(tmp_path: Path) -> None:
    from tpuserve.runtime import loader

    manager = Manager(lambda directory: loader.load(directory))
    aspire(manager, "half", {1: models.export(models.half_plus_two, tmp_path / "half")})
    asking = "--service-kind tfserving -i grpc -m half --model-signature-name serving_default"
    # With this tolerance, windows of any figures agree: the test does not use the figures.
    briefly = "--measurement-mode count_windows --measurement-request-count 50 -s 999 -r 3"
    with clients.serving(DataPlane(manager)) as server:
        report = perf_analyzer.run_perf_analyzer(
            *asking.split(), "-u", server.address, "--shape", "x:3", *briefly.split()
        )
    manager.close(1)
    assert report.num_requests >= 50
