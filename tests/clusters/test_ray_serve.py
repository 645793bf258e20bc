"""A deployment on a local cluster of Ray with two nodes answers TensorFlow Serving's stub."""

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
import yaml

# On a busy machine a proxy takes longer than Ray's five seconds to start.
os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "300"
os.environ["RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S"] = "300"

ray = pytest.importorskip("ray", reason="make test-clusters runs it")

import tensorflow as tf  # noqa: E402
from ray import serve  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402
from tensorflow_serving.apis import (  # noqa: E402
    get_model_status_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

import tpuserve.ray  # noqa: E402
from tests import processes  # noqa: E402
from tests.tpuserve.prediction import models  # noqa: E402
from tpuserve.errors import InvalidSetting  # noqa: E402

pytestmark = pytest.mark.slow

# Only a cluster that hangs takes as long, in seconds.
TIME_LIMIT = 600
APPLICATION = "digits"
DEPLOYMENT = "tpuserve"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("model")
    models.save(base / "1")
    return base


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a cluster of two nodes, each with processors for one replica."""
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.add_node(num_cpus=1)
    ray.init(address=nodes.address, log_to_driver=False)
    try:
        yield nodes
    finally:
        serve.shutdown()
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture(scope="module")
def address(cluster: Any) -> str:
    """Start Ray Serve; return the address of its gRPC proxy."""
    port, http_port = processes.free_ports(2)
    serve.start(
        # Both nodes have one address, and so one proxy.
        proxy_location="HeadOnly",
        http_options={"port": http_port},
        grpc_options=tpuserve.ray.grpc_options(port),
    )
    return f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def stub(address: str, base_path: Path) -> Iterator[Any]:
    """Deploy two replicas; yield TensorFlow Serving's stub."""
    deploy(base_path, num_replicas=2)
    with grpc.insecure_channel(address) as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def deploy(base_path: Path, **options: Any) -> None:
    application = tpuserve.ray.deployment(
        base_path.as_uri(),
        model_name="double",
        enable_batching=True,
        options={"ray_actor_options": {"num_cpus": 0.5}, **options},
    )
    serve.run(application, name=APPLICATION)


def request(rows: int = 3) -> tuple[Any, Any]:
    """Return a PredictRequest and the expected output y."""
    x = models.values(rows)
    message = models.request(x)
    message.model_spec.name = "double"
    return message, 2 * x


def running_replicas() -> int:
    """Return the number of replicas that answer requests."""
    application = serve.status().applications.get(APPLICATION)
    deployment = application and application.deployments.get(DEPLOYMENT)
    return deployment.replica_states.get("RUNNING", 0) if deployment else 0


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIME_LIMIT
    while not is_true():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@contextmanager
def send_load(stub: Any, clients: int = 4) -> Iterator[list[Any]]:
    """Send requests from several threads during a with block; yield the errors so far."""
    failures: list[Any] = []
    answered = 0
    is_over = threading.Event()
    message, expected = request()

    def send() -> int:
        count = 0
        while not is_over.is_set():
            try:
                response = stub.Predict(message, timeout=TIME_LIMIT)
            except grpc.RpcError as error:
                failures.append(error)
                continue
            np.testing.assert_array_equal(tf.make_ndarray(response.outputs["y"]), expected)
            count += 1
        return count

    with ThreadPoolExecutor(clients) as executor:
        senders = [executor.submit(send) for _ in range(clients)]
        try:
            yield failures
        finally:
            is_over.set()
        answered = sum(sender.result() for sender in senders)
    assert answered > 0


def replica_actors() -> list[Any]:
    """Return the actors of the replicas."""
    prefix = f"SERVE_REPLICA::{APPLICATION}#{DEPLOYMENT}#"
    actors = []
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["name"].startswith(prefix):
            # An actor may end between the two calls.
            with contextlib.suppress(ValueError):
                actors.append(ray.get_actor(actor["name"], namespace="serve"))
    return actors


def test_the_stub_of_tensorflow_serving_gets_answers(stub: Any) -> None:
    message, expected = request()
    response = stub.Predict(message, timeout=TIME_LIMIT)
    np.testing.assert_array_equal(tf.make_ndarray(response.outputs["y"]), expected)
    assert response.model_spec.version.value == 1


def test_errors_have_the_status_of_our_server(stub: Any) -> None:
    message, _ = request()
    message.model_spec.name = "other"
    with pytest.raises(grpc.RpcError) as not_found:
        stub.Predict(message, timeout=TIME_LIMIT)
    assert not_found.value.code() is grpc.StatusCode.NOT_FOUND
    assert "other" in not_found.value.details()
    message.model_spec.name = "double"
    message.inputs["z"].CopyFrom(message.inputs["x"])
    with pytest.raises(grpc.RpcError) as invalid:
        stub.Predict(message, timeout=TIME_LIMIT)
    assert invalid.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_model_service_reports_the_version(stub: Any, address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        model_service = model_service_pb2_grpc.ModelServiceStub(channel)
        message = get_model_status_pb2.GetModelStatusRequest()
        message.model_spec.name = "double"
        response = model_service.GetModelStatus(message, timeout=TIME_LIMIT)
    assert [status.version for status in response.model_version_status] == [1]


def test_a_killed_replica_is_replaced_under_load(stub: Any) -> None:
    with send_load(stub) as failures:
        first, second = replica_actors()
        ray.kill(first, no_restart=True)
        wait_until(
            lambda: (
                len(replica_actors()) == 2
                and first not in replica_actors()
                and running_replicas() == 2
            ),
            "the replica was not replaced",
        )
        num_failures = len(failures)
        assert second in replica_actors()
    # Only the requests that the killed replica had begun may fail: four clients have one each, and
    # the proxy may send the next ones before it knows.
    codes = {failure.code() for failure in failures}
    assert codes <= {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE}, codes
    assert len(failures) == num_failures


def test_no_request_fails_when_a_replica_is_removed(stub: Any, base_path: Path) -> None:
    wait_until(lambda: running_replicas() == 2, "there are no two replicas")
    with send_load(stub) as failures:
        deploy(base_path, num_replicas=1)
        wait_until(lambda: len(replica_actors()) == 1, "no replica was removed")
    assert [failure.details() for failure in failures] == []


def test_a_config_file_deploys_with_autoscaling_by_queues(
    cluster: Any, stub: Any, base_path: Path, tmp_path: Path
) -> None:
    example = yaml.safe_load((ROOT / "examples" / "ray_serve.yaml").read_text())
    (application,) = example["applications"]
    application["name"] = APPLICATION
    application["args"] |= {"model_base_path": str(base_path), "model_name": "double"}
    (described,) = application["deployments"]
    assert described["name"] == DEPLOYMENT
    described["autoscaling_config"] |= {
        "max_replicas": 2,
        "target_ongoing_requests": 1,
        "upscale_delay_s": 0,
        "metrics_interval_s": 1,
    }
    described["ray_actor_options"] = {"num_cpus": 0.5}
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump({"applications": [application]}))
    command = [sys.executable, "-m", "ray.serve.scripts", "run", "--non-blocking"]
    command += [f"--address={cluster.address}", str(path)]
    before = serve.status().applications[APPLICATION].last_deployed_time_s
    subprocess.run(command, check=True, timeout=TIME_LIMIT)

    def is_deployed() -> bool:
        status = serve.status().applications[APPLICATION]
        is_new = status.last_deployed_time_s > before and status.status == "RUNNING"
        return is_new and running_replicas() == len(replica_actors()) == 1

    wait_until(is_deployed, "the config file was not applied")
    with send_load(stub, clients=16) as failures:
        wait_until(lambda: running_replicas() == 2, "no replica was added")
    assert [failure.details() for failure in failures] == []


def test_invalid_deployments_are_refused(base_path: Path) -> None:
    for flags, message in (
        ({"model_nme": "x"}, "model_nme, which `tpuserve serve` does not have"),
        ({"port": 1}, "flags port, which have no effect"),
        ({"model_name": ""}, "--model_name is empty"),
        ({"options": {"num_replica": 2}}, "Ray refuses the options"),
        ({"options": {"num_replicas": 0}}, "Ray refuses the options"),
    ):
        with pytest.raises(InvalidSetting, match=message):
            tpuserve.ray.deployment(base_path, **flags)


def test_the_example_of_the_module_describes_two_replicas() -> None:
    assert tpuserve.ray.__doc__
    example = textwrap.dedent(tpuserve.ray.__doc__.split("\n\n")[1])
    started: list[Any] = []
    applications: list[Any] = []
    serve_methods = SimpleNamespace(
        start=lambda grpc_options: started.append(grpc_options), run=applications.append
    )
    exec(example, {"serve": serve_methods, "tpuserve": tpuserve})
    assert started == [tpuserve.ray.grpc_options()]
    (application,) = applications
    assert application._bound_deployment.num_replicas == 2


def test_the_proxies_of_the_config_file_answer_the_same_services() -> None:
    example = yaml.safe_load((ROOT / "examples" / "ray_serve.yaml").read_text())
    options = tpuserve.ray.grpc_options(8500)
    assert example["grpc_options"]["port"] == options.port
    assert example["grpc_options"]["grpc_servicer_functions"] == options.grpc_servicer_functions


def test_the_document_shows_the_config_file() -> None:
    example = (ROOT / "examples" / "ray_serve.yaml").read_text().partition("\n")[2]
    document = (ROOT / "docs" / "ray.md").read_text()
    assert textwrap.indent(example, "    ") in document
