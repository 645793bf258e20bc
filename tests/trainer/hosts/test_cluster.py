import socket
from typing import Any

import pytest
import tensorflow as tf

from tests import processes
from tpuserve.errors import HostLost, HostMissing, PortInUse
from trainer.config.cluster_hosts import Task
from trainer.hosts import cluster, cluster_server

pytestmark = pytest.mark.slow


def task(index: int, port: int) -> Task:
    return Task("worker", index, f"{processes.LOOPBACK}:{port}")


@pytest.fixture
def listening() -> Any:
    """A task that accepts connections."""
    with socket.create_server((processes.LOOPBACK, 0)) as listener:
        yield task(0, listener.getsockname()[1])


def test_tasks_that_do_not_answer_are_named(listening: Task) -> None:
    first, second = (task(1 + index, port) for index, port in enumerate(processes.free_ports(2)))
    assert cluster.find_unreachable([first, listening, second]) == [first, second]
    cluster.wait_for_tasks([listening], 0.0)
    text = rf"^worker 1 \({first.address}\) and worker 2 \({second.address}\) did not answer"
    with pytest.raises(HostMissing, match=text):
        cluster.wait_for_tasks([first, listening, second], 0.1)


def test_a_lost_task_is_logged_and_awaited(
    listening: Task, caplog: pytest.LogCaptureFixture
) -> None:
    lost = task(1, *processes.free_ports(1))
    with pytest.raises(HostLost, match=r"^worker 1 .* did not answer within 0.1 s\. Start"):
        cluster.wait_for_lost([listening, lost], 0.1)
    assert f"{lost} is lost: waiting 0.1 s for its restart" in caplog.text


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        spec = tf.train.ClusterSpec({"worker": [f"{processes.LOOPBACK}:{port}"]})
        with pytest.raises(PortInUse, match=rf"worker 0 cannot listen at .*:{port}: "):
            cluster_server.start_server(spec, "worker", 0)
