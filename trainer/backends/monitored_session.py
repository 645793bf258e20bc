"""Sessions as each mode wants them."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer.backends.base import ExecutionBackend
from trainer.config import tf_config
from trainer.config.run_config import RunConfig
from trainer.tensorflow_internals import monitored_session


def config_proto(config: RunConfig) -> Any:
    """The ConfigProto of a run: the user's, else one that lets ops without a GPU kernel run.

    The graph is optimized once over, not twice: the second time costs a start more than it gains.
    In a cluster, chief and workers see themselves and the parameter servers alone: none of them
    waits for a worker that is late, or that has gone.
    """
    if config.session_config is not None:
        return config.session_config
    proto = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    options = proto.graph_options.rewrite_options
    options.meta_optimizer_iterations = options.ONE
    if is_in_cluster(config):
        proto.device_filters.extend(_device_filters(config))
    return proto


def is_in_cluster(config: RunConfig) -> bool:
    """Whether TF_CONFIG has this process share variables with others."""
    return config.cluster is None and bool(config.task.jobs)


def _device_filters(config: RunConfig) -> list[str]:
    servers, own = f"/job:{tf_config.PS}", f"/job:{config.task_type}"
    if config.task_type == tf_config.PS:
        return [servers, *(f"/job:{each}" for each in config.task.jobs if each != tf_config.PS)]
    if config.task_type == tf_config.WORKER:
        own += f"/task:{config.task_id}"
    return [servers, own]


class _WorkerSessionCreator(tf.compat.v1.train.SessionCreator):
    """Waits until the chief has initialised the variables."""

    def __init__(self, scaffold: Any, master: str, proto: Any, timeout_secs: float) -> None:
        self._scaffold, self._master, self._proto = scaffold, master, proto
        self._timeout_secs = timeout_secs

    def create_session(self) -> Any:
        self._scaffold.finalize()
        manager = tf.compat.v1.train.SessionManager(
            local_init_op=self._scaffold.local_init_op,
            local_init_feed_dict=self._scaffold.local_init_feed_dict,
            ready_op=self._scaffold.ready_op,
            ready_for_local_init_op=self._scaffold.ready_for_local_init_op,
            graph=tf.compat.v1.get_default_graph(),
            # TensorFlow's own creator for workers looks every 30 s.
            recovery_wait_secs=1,
        )
        return manager.wait_for_session(
            self._master, config=self._proto, max_wait_secs=self._timeout_secs
        )


def create_monitored_session(
    config: RunConfig,
    place: ExecutionBackend,
    scaffold: Any,
    hooks: Sequence[Any],
    *,
    checkpoint_dir: str | None = None,
    checkpoint_path: str | None = None,
    is_chief: bool = True,
    recovers: bool = True,
) -> Any:
    """A MonitoredSession that restores a checkpoint, if there is one, and drives hooks.

    A worker's restores nothing, and waits for the variables that its chief initialises.

    Args:
      config: gives the ConfigProto.
      place: where it runs.
      scaffold: gives the saver and the initialisation ops.
      hooks: called in this order.
      checkpoint_dir: restore the newest checkpoint from here.
      checkpoint_path: restore just this checkpoint.
      is_chief: whether this process initialises the variables.
      recovers: whether a session that is lost is made anew, to go on from the newest checkpoint.
        What must be made whole in one session, as an evaluation, cannot go on from there.

    Raises:
      tf.errors.DeadlineExceededError: the chief has not initialised the variables within the
        config's session_creation_timeout_secs.
    """
    proto = place.session_config(config_proto(config))
    if not is_chief:
        worker = _WorkerSessionCreator(
            scaffold, place.master, proto, config.session_creation_timeout_secs
        )
        return tf.compat.v1.train.MonitoredSession(worker, hooks=list(hooks))
    creator = tf.compat.v1.train.ChiefSessionCreator(
        scaffold,
        master=place.master,
        config=proto,
        checkpoint_dir=checkpoint_dir,
        checkpoint_filename_with_path=checkpoint_path,
    )
    if recovers:
        return tf.compat.v1.train.MonitoredSession(creator, hooks=list(hooks))
    return monitored_session._MonitoredSession(creator, list(hooks), should_recover=False)
