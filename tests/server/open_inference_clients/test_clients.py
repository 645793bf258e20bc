"""The clients of Triton and of KServe, unmodified, are answered by the server.

The clients are installed in an environment of their own, `.venv-clients`, by `make test`: they need
an older protobuf than the server. TPUSERVE_CLIENTS_PYTHON has the path of another environment's
Python. tools/perf_analyzer.py says where perf_analyzer comes from.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ServeProcess
from tools import perf_analyzer

pytestmark = [pytest.mark.slow, pytest.mark.first]

ROOT = Path(__file__).parents[3]
PYTHON = os.environ.get("TPUSERVE_CLIENTS_PYTHON") or ROOT / ".venv-clients" / "bin" / "python"
needs_clients = pytest.mark.skipif(
    not Path(PYTHON).exists(), reason="the clients are not there; see this file's docstring"
)
ECHOED = ("float16", "bfloat16", "string", "int64", "bool")


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export y = x / 2 + 2, and a signature for each dtype in `ECHOED` that returns y = x."""
    import tensorflow as tf

    def signature(function: Any, dtype: Any) -> Any:
        spec = tf.TensorSpec([None], dtype, name="x")
        return tf.function(function, input_signature=[spec]).get_concrete_function()

    module = tf.Module()
    signatures = {
        name: signature(lambda x: {"y": tf.identity(x)}, getattr(tf, name)) for name in ECHOED
    }
    signatures["serving_default"] = signature(lambda x: {"y": x / 2 + 2}, tf.float32)
    base: Path = tmp_path_factory.mktemp("half")
    tf.saved_model.save(module, str(base / "1"), signatures=signatures)
    return base


@pytest.fixture(scope="module")
def server(base_path: Path) -> Iterator[ServeProcess]:
    flags = ["--enable_model_control", "--enable_batching"]
    server = ServeProcess(base_path, flags=flags)
    yield server
    server.stop()


def run_client(*command: str | Path) -> str:
    # Leave out PYTHONPATH, which hides optional packages from the processes that tests start: the
    # clients need some of them.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@needs_clients
@pytest.mark.parametrize("kind", ["http", "http.aio", "grpc", "grpc.aio"])
def test_tritonclient_is_answered(server: ServeProcess, kind: str) -> None:
    program = Path(__file__).with_name("triton_program.py")
    address = server.rest if kind.startswith("http") else server.rpc
    results = json.loads(run_client(PYTHON, program, kind, address))
    for flag in ("live", "ready", "model_ready", *ECHOED, "after_load"):
        assert results[flag] is True, flag
    assert (results["other_ready"], results["after_unload"]) == (False, False)
    assert results["binary"] == [2.5, 3.0, 4.5]
    if kind.startswith("http"):
        assert results["json"] == results["gzip"] == [2.5, 3.0, 4.5]
    assert results["server"]["name"] == "tpuserve"
    (x,) = results["metadata"]["inputs"]
    assert (x["name"], x["datatype"], [int(size) for size in x["shape"]]) == ("x", "FP32", [-1])
    config = results["config"].get("config", results["config"])
    (x,) = config["input"]
    assert (x["data_type"], [int(size) for size in x["dims"]]) == ("TYPE_FP32", [-1])
    assert results["wrong_type"].endswith(
        "input 'x' has the datatype FP64; the signature expects float32 [?]."
    )
    assert results["wrong_shape"].endswith(
        "input 'x' has the shape [1, 1]; the signature expects float32 [?]."
    )
    num_streamed = 0
    if kind.startswith("grpc"):
        first, second, wrong, last = results["stream"]
        assert [first, second] == [["0", True, [2.0]], ["1", True, [2.5]]]
        assert wrong.endswith("input 'x' has the datatype FP64; the signature expects float32 [?].")
        assert last == ["3", True, [3.5]]
        num_streamed = 3
    # Three rows of floats and two of each other dtype; JSON and gzip repeat the floats.
    num_floats = 3 if kind.startswith("http") else 1
    (statistics,) = results["statistics"]["model_stats"]
    assert int(statistics["inference_count"]) == 3 * num_floats + 2 * len(ECHOED) + num_streamed
    successes = int(statistics["inference_stats"]["success"]["count"])
    assert successes == num_floats + len(ECHOED) + num_streamed
    index = results["index"]["models"] if kind.startswith("grpc") else results["index"]
    assert index == [{"name": "half", "version": "1", "state": "READY"}]


@needs_clients
def test_kserves_client_is_answered(server: ServeProcess) -> None:
    program = Path(__file__).with_name("kserve_program.py")
    results = json.loads(run_client(PYTHON, program, f"http://{server.rest}", server.rpc))
    assert results == {
        "live": [True, True],
        "ready": [True, True],
        "model_ready": [True, True],
        **dict.fromkeys(("json", "binary", "grpc"), [2.5, 3.0, 4.5]),
    }


@pytest.mark.skipif(
    perf_analyzer.find_perf_analyzer() is None,
    reason="perf_analyzer is not there; see tools/perf_analyzer.py",
)
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_perf_analyzer_counts_requests_that_the_servers_statistics_have(
    server: ServeProcess, protocol: str
) -> None:
    before = read_counts(server)
    # With this tolerance, windows of any figures agree: the test does not use the figures, which
    # benchmarks/serve/clients/perf_analyzer.py measures.
    options = "-m half --shape x:3 --measurement-mode count_windows -s 999 -r 3"
    address = server.rest if protocol == "http" else server.rpc
    report = perf_analyzer.run_perf_analyzer(
        *options.split(), "--measurement-request-count", "50", "-i", protocol, "-u", address
    )
    # perf_analyzer counts the requests of its windows, and the server those between them too.
    after = read_counts(server)
    assert 50 <= report.num_requests <= after["success"] - before["success"]
    assert after["fail"] == before["fail"]
    assert "Successful request count: " in report.output


def read_counts(server: ServeProcess) -> dict[str, int]:
    with urllib.request.urlopen(f"http://{server.rest}/v2/models/half/stats", timeout=60) as reply:
        (statistics,) = json.load(reply)["model_stats"]
    counts = statistics["inference_stats"]
    return {name: int(counts[name]["count"]) for name in ("success", "fail")}
