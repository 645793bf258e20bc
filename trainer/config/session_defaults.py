"""Builds the ConfigProto for the sessions of a run whose RunConfig has no session_config."""

from typing import Any

from trainer.config import tf_config
from trainer.config.tf_config import ClusterTask


def make_session_config(task: ClusterTask | None) -> Any:
    """Return a ConfigProto with soft placement, and with device filters for a task of a cluster.

    Soft placement lets ops without a GPU kernel run on the CPU.
    """
    # Import TensorFlow here and not at the top of the module: the import takes seconds, and a
    # RunConfig without a cluster does not need TensorFlow.
    import tensorflow as tf

    proto = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    options = proto.graph_options.rewrite_options
    options.meta_optimizer_iterations = options.ONE
    if task is not None:
        proto.device_filters.extend(_device_filters(task))
    return proto


def has_device_filters(task: ClusterTask) -> bool:
    """Return whether the sessions of a task get device filters, as in tf.estimator.RunConfig."""
    return bool(task.jobs) and task.task_type in _FILTERED_TYPES


_FILTERED_TYPES = (tf_config.MASTER, tf_config.CHIEF, tf_config.WORKER, tf_config.PS)


def _device_filters(task: ClusterTask) -> list[str]:
    servers, own = f"/job:{tf_config.PS}", f"/job:{task.task_type}"
    if task.task_type == tf_config.PS:
        others = (tf_config.WORKER, tf_config.CHIEF, tf_config.MASTER)
        return [servers, *(f"/job:{job}" for job in others)]
    if task.task_type == tf_config.WORKER:
        own += f"/task:{task.task_id}"
    return [servers, own]
