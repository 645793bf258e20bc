"""A server of lazy models loads each at its first request, and unloads others for it."""

import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

from tests import models, processes
from tests.processes import ServeProcess
from tests.server.frontends.grpc import clients
from tpuserve import tags
from tpuserve.client import Client

pytestmark = pytest.mark.slow

v1 = tf.compat.v1
NAMES = ("a", "b", "c", "d", "e")


def four_megabytes(x: Any) -> dict[str, Any]:
    """Return y = 2 x, with variables of four megabytes."""
    ones = v1.get_variable("ones", [1, 1_000_000], initializer=v1.ones_initializer())
    return {"y": 2 * x * tf.reduce_mean(ones)}


def unknown_op(directory: Path) -> None:
    """Replace an op of a SavedModel by one that no library has."""
    file = directory / "saved_model.pb"
    file.write_bytes(file.read_bytes().replace(b"Mean", b"Nean"))


class Server:
    """A server of lazy models of four megabytes, of which two fit beside a pinned one."""

    def __init__(self, base: Path, process: ServeProcess) -> None:
        self.base = base
        self.process = process
        self.http = httpx.Client(base_url=f"http://{process.rest}", timeout=60)

    def predict(self, name: str) -> httpx.Response:
        return self.http.post(f"/v1/models/{name}:predict", json={"instances": [[3.0]]})

    def state(self, name: str) -> str:
        (status,) = self.http.get(f"/v1/models/{name}").json()["model_version_status"]
        return str(status["state"])

    def loaded(self) -> str:
        return "".join(name for name in NAMES if self.state(name) == "AVAILABLE")

    def metric(self, name: str) -> dict[str, float]:
        """Return model name → value of a metric."""
        pattern = rf'^tpuserve_{name}{{model_name="([^"]+)"}} (\S+)$'
        page = self.http.get("/metrics").text
        return {model: float(value) for model, value in re.findall(pattern, page, re.MULTILINE)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = tmp_path_factory.mktemp("lazy")
    version = models.export(four_megabytes, base / "exported", tags.SERVE)
    for name in (*NAMES, "pinned", "failing", "damaged"):
        shutil.copytree(version, base / name / "1")
    unknown_op(base / "failing" / "1")
    (base / "damaged" / "1" / "saved_model.pb").write_bytes(b"\xff" * 9)
    line = "config {{ name: '{0}' base_path: '{1}/{0}' model_platform: 'tensorflow' {2} }}\n"
    lines = [line.format(name, base, "") for name in (*NAMES, "failing", "damaged")]
    lines.append(line.format("pinned", base, "pinned: true"))
    config = base / "models.conf"
    config.write_text(f"model_config_list {{ {''.join(lines)} }}")
    flags = [f"--model_config_file={config}", "--lazy_load", "--max_model_memory=17MB"]
    process = ServeProcess(base / "exported", flags=flags)
    server = Server(base, process)
    with server.http:
        yield server
    process.kill()


def test_server_is_ready_when_all_models_are_listed_and_checked(server: Server) -> None:
    assert server.http.get("/readyz").status_code == 200
    assert server.loaded() == ""
    assert server.state("pinned") == "AVAILABLE"
    status = server.http.get("/v1/models/a").json()["model_version_status"]
    assert status == [
        {
            "version": "1",
            "state": "START",
            "status": {
                "error_code": "OK",
                "error_message": "not in memory: the first request loads it",
            },
        }
    ]
    assert server.http.get("/v2/models/a/ready").status_code == 200
    assert server.http.get("/v2/models/damaged/ready").status_code == 503


def test_first_request_over_each_api_loads_its_model(server: Server) -> None:
    assert server.predict("a").json() == {"predictions": [[6.0]]}
    with grpc.insecure_channel(server.process.rpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        request = clients.predict_request(spec={"name": "b"}, x=np.array([[3]], np.float32))
        assert list(stub.Predict(request, timeout=60).outputs["y"].float_val) == [6.0]
        metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        metadata.model_spec.name = "c"
        assert stub.GetModelMetadata(metadata, timeout=60).model_spec.version.value == 1
        status = get_model_status_pb2.GetModelStatusRequest()
        status.model_spec.name = "c"
        states = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status)
        assert [version.state for version in states.model_version_status] == [30]
    with Client(f"grpc://{server.process.rpc}", api="v2") as client:
        assert client.predict("d", {"x": np.array([[3]], np.float32)})["y"] == [[6.0]]
    assert server.http.get("/v2/models/e").json()["inputs"][0]["name"] == "x"
    assert server.http.get("/v2/models/a/config").json()["name"] == "a"
    assert server.http.get("/v1/models/a/metadata").status_code == 200


def test_least_recently_used_model_is_unloaded_and_the_pinned_one_stays(server: Server) -> None:
    before = server.metric("model_evictions_total")
    for name in "abac":
        assert server.predict(name).status_code == 200
    assert server.loaded() == "ac"
    assert server.state("pinned") == "AVAILABLE"
    loaded = server.metric("model_bytes")
    assert loaded.keys() == {"a", "c", "pinned"}
    assert all(4_500_000 < num_bytes < 5_500_000 for num_bytes in loaded.values())
    evictions = server.metric("model_evictions_total")
    assert evictions["b"] == before.get("b", 0) + 1
    listed = {model["name"]: model for model in server.http.get("/v1/models").json()["models"]}
    assert int(listed["a"]["loaded_bytes"]) == loaded["a"]
    assert "loaded_bytes" not in listed["b"]


def test_all_requests_are_answered_while_more_models_are_asked_for_than_fit(
    server: Server,
) -> None:
    with ThreadPoolExecutor(5) as threads:
        replies = list(threads.map(server.predict, "abcde" * 8))
    assert [reply.json() for reply in replies] == [{"predictions": [[6.0]]}] * 40


def test_model_that_cannot_be_loaded_tells_each_request_why_after_one_load(
    server: Server,
) -> None:
    for _ in range(3):
        reply = server.predict("failing")
        assert reply.status_code == 503
        assert re.match("model failing cannot be loaded: .*Nean", reply.json()["error"])
    assert server.metric("lazy_loads_total")["failing"] == 1
    assert server.predict("damaged").status_code == 503
    assert "damaged" not in server.metric("lazy_loads_total")
    assert server.predict("a").status_code == 200


def test_repaired_files_are_taken_by_the_next_request(server: Server) -> None:
    good = server.base / "a" / "1" / "saved_model.pb"
    shutil.copy(good, server.base / "damaged" / "1")
    while server.state("damaged") != "START":
        assert server.predict("a").status_code == 200
    assert server.predict("damaged").json() == {"predictions": [[6.0]]}


def test_new_version_of_a_loaded_model_replaces_it_and_of_another_is_listed(
    server: Server,
) -> None:
    assert server.predict("a").status_code == 200
    for name in "ab":
        shutil.copytree(server.base / name / "1", server.base / name / "copied")
        (server.base / name / "copied").rename(server.base / name / "2")
    for name, state in ("a", "AVAILABLE"), ("b", "START"):
        while server.http.get(f"/v1/models/{name}/versions/2").status_code != 200:
            pass
        while (
            server.http.get(f"/v1/models/{name}/versions/2").json()["model_version_status"][0][
                "state"
            ]
            != state
        ):
            assert server.predict("a").status_code == 200


def test_limit_below_one_model_ends_the_start_with_the_sizes(tmp_path: Path) -> None:
    models.export(four_megabytes, tmp_path / "half", tags.SERVE)
    result = processes.run_tpuserve(
        *("serve", f"--model_base_path={tmp_path / 'half'}", "--model_name=half"),
        *("--port=0", f"--rest_api_port={processes.free_ports(1)[0]}", "--lazy_load"),
        "--max_model_memory=3MB",
    )
    assert result.returncode == 1
    assert re.search(
        r"model half needs about 4\.\d+ MB, which is more than the --max_model_memory of 3 MB\. "
        r"Raise the limit\.",
        result.stderr,
    )
