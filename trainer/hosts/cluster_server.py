"""Starts the TensorFlow server of this process, which is a task of a cluster."""

import logging
from typing import Any

import tensorflow as tf

from tpuserve.errors import PortInUse

logger = logging.getLogger("tensorflow.trainer")

# (cluster, job, task index) → the running server. It is reused, because a server does not release
# its port before the process ends, so a second server could not start.
_servers: dict[tuple[str, str, int], Any] = {}


def start_server(
    cluster_spec: Any, job: str, index: int, *, protocol: str | None = None, proto: Any = None
) -> Any:
    """Start the TensorFlow server of this process, or return the running server.

    Args:
      cluster_spec: the tf.train.ClusterSpec.
      job: the job of this process.
      index: the number of this process within the job.
      protocol: the protocol of the server, such as "grpc"; None for TensorFlow's default.
      proto: the ConfigProto that the server adds to the ConfigProto of each session.

    Returns:
      The tf.distribute.Server. It runs until the process ends.

    Raises:
      PortInUse: another process uses the port of the task.
    """
    key = str(cluster_spec), job, index
    if key not in _servers:
        try:
            _servers[key] = tf.distribute.Server(
                cluster_spec, job_name=job, task_index=index, protocol=protocol, config=proto
            )
        except tf.errors.UnknownError as error:
            address = cluster_spec.task_address(job, index)
            raise PortInUse(
                f"{job} {index} cannot listen at {address}: {error.message}. End the process that "
                f"uses the port, or give the task another address, in all processes."
            ) from error
        logger.info("%s %d serves at %s", job, index, _servers[key].target)
    return _servers[key]
