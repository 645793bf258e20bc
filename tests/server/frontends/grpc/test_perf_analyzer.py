"""NVIDIA's perf_analyzer, a C++ client that is not TensorFlow Serving's, can use the server.

The wheels of tritonclient 2.46 to 2.50 contain the program. It needs Debian's libb64-0d, and
libcudart of nvidia-cuda-runtime-cu12 on LD_LIBRARY_PATH. The variable TPUSERVE_PERF_ANALYZER has
its path, unless the program is on the PATH.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from server.dataplane import DataPlane
from server.models.manager import Manager
from tests import models
from tests.server.aspiring import aspire
from tests.server.frontends.grpc import clients

pytestmark = pytest.mark.slow

BINARY = os.environ.get("TPUSERVE_PERF_ANALYZER") or shutil.which("perf_analyzer")


@pytest.mark.skipif(BINARY is None, reason="perf_analyzer is not there; see this file's docstring")
def test_perf_analyzer_reads_the_metadata_and_is_answered(tmp_path: Path) -> None:
    from tpuserve.runtime import loader

    assert BINARY is not None
    manager = Manager(lambda directory: loader.load(directory))
    aspire(manager, "half", {1: models.export(models.half_plus_two, tmp_path / "half")})
    asking = "--service-kind tfserving -i grpc -m half --model-signature-name serving_default"
    # One measurement window suffices, because the test does not use the figures.
    briefly = "--measurement-mode count_windows --measurement-request-count 50 -s 999 -r 3"
    with clients.serving(DataPlane(manager)) as server:
        done = subprocess.run(
            [BINARY, *asking.split(), "-u", server.address, "--shape", "x:3", *briefly.split()],
            capture_output=True,
            text=True,
            timeout=120,
        )
    manager.close(1)
    assert done.returncode == 0, done.stdout + done.stderr
    count = re.search(r"Request count: (\d+)", done.stdout)
    assert count is not None, done.stdout
    assert int(count[1]) >= 50
