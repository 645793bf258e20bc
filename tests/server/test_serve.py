"""`tpuserve serve` with a real model, real processes, real sockets and real signals."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.profiler import profiler_client
from tensorflow.tsl.profiler.protobuf import xplane_pb2
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from server.app import Server
from server.config.settings import Settings
from tests import models, processes
from tests.processes import ServeProcess
from tests.server.fakes import FakeLoader
from tpuserve import tags
from tpuserve.errors import InvalidSetting


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.export(models.half_plus_two, tmp_path_factory.mktemp("half")).parent


@pytest.fixture(
    scope="module",
    params=[tags.SERVE, tags.SERVE_TPU],
    ids=["{serve}", "{serve, tpu}"],
)
def server(base_path: Path, request: pytest.FixtureRequest) -> Iterator[ServeProcess]:
    with processes.serving(base_path, request.param) as server:
        yield server


def post(server: ServeProcess, body: Any, model: str = "half") -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    url = f"http://{server.rest}/v1/models/{model}:predict"
    return httpx.post(url, content=content, timeout=60)


def predict(server: ServeProcess, x: Any, model: str = "half") -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(x))
    with grpc.insecure_channel(server.rpc) as channel:
        return prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request)


def refusal(server: ServeProcess, x: Any, model: str = "half") -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as error:
        predict(server, x, model)
    return error.value.code()


@pytest.mark.slow
def test_one_line_says_which_metagraph_runs_on_what_and_why(server: ServeProcess) -> None:
    (line,) = [line for line in server.log.splitlines() if "{serve" in line]
    assert "half/" in line
    assert "{serve} on CPU (asked for; no TPU found)" in line or (
        "{serve, tpu} on CPU through XLA (asked for; emulated TPU of 1 core" in line
    )


def test_first_line_comes_before_the_wait_for_tensorflow(server: ServeProcess) -> None:
    assert "starting: importing TensorFlow" in server.log.splitlines()[0]


def test_rows_and_columns_are_answered_over_rest(server: ServeProcess) -> None:
    assert post(server, {"instances": [[1.0], [2.0], [5.0]]}).json() == {
        "predictions": [[2.5], [3.0], [4.5]]
    }
    assert post(server, {"inputs": {"x": [[4.0]]}}).json() == {"outputs": [[4.0]]}


def test_the_same_is_answered_over_grpc_in_typed_fields(server: ServeProcess) -> None:
    response = predict(server, np.array([[1], [2], [5]], np.float32))
    assert list(response.outputs["y"].float_val) == [2.5, 3.0, 4.5]
    assert response.model_spec.signature_name == "serving_default"


def test_status_is_the_same_over_rest_and_grpc(server: ServeProcess) -> None:
    (rest,) = httpx.get(f"http://{server.rest}/v1/models/half").json()["model_version_status"]
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "half"
    with grpc.insecure_channel(server.rpc) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        (rpc,) = stub.GetModelStatus(request).model_version_status
    assert (rest["version"], rest["state"]) == (str(rpc.version), "AVAILABLE")
    assert rpc.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE


# The steps of TensorFlow Serving's own test of the profiler: a request every second from a shell,
# and meanwhile one call of TensorFlow's client. `{1..3}` is bash's: with another shell, the loop
# ends before the client begins.
REQUESTS = """
for n in {1..3}; do curl --silent --data '{"instances": [[2.0], [3.0]]}' $1 & sleep 1; done; wait
"""


@pytest.mark.slow
def test_profile_of_a_serving_process_is_taken_as_tensorflow_servings_test_takes_it(
    server: ServeProcess, tmp_path: Path
) -> None:
    url = f"http://{server.rest}/v1/models/half:predict"
    requests = subprocess.Popen(
        ["bash", "-c", REQUESTS, "bash", url], stdout=subprocess.PIPE, text=True
    )
    # `trace` raises an error if ten tries record no event.
    profiler_client.trace(server.rpc, str(tmp_path), 1000, "", 10)
    answers, _ = requests.communicate(timeout=60)
    assert answers.count("predictions") == 3
    (profile,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(profile.read_bytes())
    names = {data.name for plane in space.planes for data in plane.event_metadata.values()}
    assert "serving" in names


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[1, 2]",
        b"[" * 500_000,
        {},
        {"instances": []},
        {"instances": 3},
        {"instances": [[1.0], [2.0, 3.0]]},
        {"instances": [["text"]]},
        {"instances": [[True]]},
        {"instances": [{"z": 1.0}]},
        {"inputs": {"z": 1.0}},
        {"instances": [[1.0]], "inputs": [[1.0]]},
        {"instances": [[1.0]], "signature_name": "absent"},
        {"instances": [[1.0]], "signature_name": 3},
    ],
    ids=lambda body: str(body)[:40],
)
def test_a_request_that_makes_no_sense_is_a_400_and_the_next_is_answered(
    server: ServeProcess, body: Any
) -> None:
    response = post(server, body)
    assert response.status_code == 400
    assert list(response.json()) == ["error"]
    assert post(server, {"instances": [[2.0]]}).json() == {"predictions": [[3.0]]}


def test_an_unknown_model_or_version_is_a_404(server: ServeProcess) -> None:
    response = post(server, {"instances": [[1.0]]}, model="absent")
    assert response.status_code == 404
    assert response.json() == {"error": "Servable not found for request: Latest(absent)"}
    response = post(server, {"instances": [[1.0]]}, model="half/versions/7")
    assert response.json() == {"error": "Servable not found for request: Specific(half, 7)"}
    assert httpx.get(f"http://{server.rest}/v1/models/absent").status_code == 404


def test_grpc_refuses_likewise(server: ServeProcess) -> None:
    assert refusal(server, np.float32(1), "absent") is grpc.StatusCode.NOT_FOUND
    assert refusal(server, np.float64(1)) is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal(server, "text") is grpc.StatusCode.INVALID_ARGUMENT
    assert predict(server, np.float32(2)).outputs["y"].float_val == [3.0]


@pytest.mark.slow
@pytest.mark.parametrize("tag_set", [tags.SERVE, tags.SERVE_TPU], ids=tags.format_tags)
def test_a_wrong_shape_is_refused_by_both_faces_and_both_metagraphs(
    tmp_path: Path, tag_set: tags.TagSet
) -> None:
    base = models.export(lambda x: {"y": tf.reshape(x, [2, 1])}, tmp_path).parent
    with processes.serving(base, tag_set) as server:
        assert post(server, {"instances": [[1.0]]}).status_code == 400
        assert refusal(server, np.ones([1, 1], np.float32)) is grpc.StatusCode.INVALID_ARGUMENT
        assert post(server, {"instances": [[1.0], [2.0]]}).json()["predictions"] == [[1.0], [2.0]]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(base_path: Path, number: signal.Signals) -> None:
    with processes.serving(base_path) as server:
        predict(server, np.float32(1))
        status, log = server.stop(number)
    assert status == 0
    assert log.endswith("stopped\n")
    assert "Traceback" not in log


def serve(base_path: object, *arguments: str) -> tuple[int, list[str]]:
    rest, rpc = processes.free_ports(2)
    ports = [f"--rest_api_port={rest}", f"--port={rpc}"]
    result = processes.run_tpuserve("serve", f"--model_base_path={base_path}", *ports, *arguments)
    return result.returncode, result.stderr.splitlines()


@pytest.mark.slow
def test_a_missing_or_empty_base_path_is_one_line_where_versions_are_required(
    tmp_path: Path,
) -> None:
    for path, text in (
        (tmp_path / "gone", "cannot be read: No such file or directory"),
        (tmp_path, "no version directory"),
    ):
        status, (line,) = serve(path, "--fail_if_no_model_versions_found")
        assert status == 1
        assert line.startswith("Error: ")
        assert str(path) in line
        assert text in line


def test_a_port_in_use_is_one_line(base_path: Path) -> None:
    with socket.create_server((processes.LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        status, (line,) = serve(base_path, "--host=127.0.0.1", f"--rest_api_port={port}")
    assert status == 1
    assert f"--rest_api_port is {port}, and another process listens" in line


def test_an_unknown_flag_is_one_line(base_path: Path) -> None:
    status, (line,) = serve(base_path, "--saved_model_tag=serve")
    assert status == 2
    assert "Did you mean" in line or "Possible options" in line
    assert "--saved_model_tags" in line


@pytest.mark.slow
def test_a_tpu_metagraph_without_a_tpu_is_an_error_and_never_a_silent_cpu(base_path: Path) -> None:
    status, lines = serve(base_path, "--saved_model_tags=tpu,serve")
    assert status == 1
    assert lines[-1].startswith("Error: metagraph {serve, tpu} of")
    assert "needs a TPU; no TPU found. Set TPUSERVE_EMULATED_TPU=1" in lines[-1]


def test_socket_that_cannot_be_made_is_told_as_that(base_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "absent" / "socket"
    settings = Settings(base_path, port=0, rest_api_port=0, grpc_socket_path=str(path))
    server = Server(settings, FakeLoader(), on_failure=pytest.fail)
    with pytest.raises(InvalidSetting, match=f"^cannot listen on unix:{path} "):
        server.start()
    server.stop()
