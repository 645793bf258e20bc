"""Importing the client is quick: it imports no TensorFlow and no network library.

The commands that measure and compare servers import no TensorFlow either.
"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
import tpuserve
assert "numpy" not in sys.modules
import tpuserve.client
heavy = {"tensorflow", "grpc", "httpx", "tenacity", "google.protobuf"} & set(sys.modules)
assert not heavy, heavy
for url in ("http://localhost:8501", "grpc://localhost:8500"):
    for api in ("v1", "v2"):
        tpuserve.client.Client(url, api=api).close()
import tpuserve.compare.comparer, tpuserve.compare.rendering, tpuserve.bench.benchmark
assert "tensorflow" not in sys.modules
"""


def test_importing_the_client_imports_neither_tensorflow_nor_a_network_library() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)
