import socket
import threading
from typing import Any

import pytest
import tensorflow as tf

from tests import processes
from tpuserve.errors import HostLost, HostMissing, PortInUse
from trainer.config.cluster_hosts import Task
from trainer.hosts import cluster_server, task_waiting


def task(index: int, port: int) -> Task:
    return Task("worker", index, f"{processes.LOOPBACK}:{port}")


@pytest.fixture
def listening() -> Any:
    """A task that accepts connections."""
    with socket.create_server((processes.LOOPBACK, 0)) as listener:
        yield task(0, listener.getsockname()[1])


def test_tasks_that_do_not_answer_are_named(listening: Task) -> None:
    first, second = (task(1 + index, port) for index, port in enumerate(processes.free_ports(2)))
    assert task_waiting.find_unreachable([first, listening, second]) == [first, second]
    task_waiting.wait_for_tasks([listening], 0.0)
    text = rf"^worker 1 \({first.address}\) and worker 2 \({second.address}\) did not answer"
    with pytest.raises(HostMissing, match=text):
        task_waiting.wait_for_tasks([first, listening, second], 0.1)


def test_a_lost_task_is_logged_and_awaited(
    listening: Task, caplog: pytest.LogCaptureFixture
) -> None:
    lost = task(1, *processes.free_ports(1))
    with pytest.raises(HostLost, match=r"^worker 1 .* did not answer within 0.1 s\. Start"):
        task_waiting.wait_for_lost([listening, lost], 0.1)
    assert f"{lost} is lost: waiting 0.1 s for its restart" in caplog.text


def test_a_call_that_waits_for_a_lost_task_is_abandoned(listening: Task) -> None:
    lost = task(1, *processes.free_ports(1))
    never = threading.Event()
    with pytest.raises(HostLost, match=r"^worker 1 .* did not answer within 0.1 s\. Start"):
        task_waiting.call_while_reachable(never.wait, [listening, lost], 0.1)


def test_a_call_with_its_tasks_returns_or_raises(listening: Task) -> None:
    assert task_waiting.call_while_reachable(lambda: 3, [listening], 0.1) == 3
    with pytest.raises(ZeroDivisionError):
        task_waiting.call_while_reachable(lambda: 1 // 0, [listening], 0.1)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        spec = tf.train.ClusterSpec({"worker": [f"{processes.LOOPBACK}:{port}"]})
        with pytest.raises(PortInUse, match=rf"worker 0 cannot listen at .*:{port}: "):
            cluster_server.start_server(spec, "worker", 0)
