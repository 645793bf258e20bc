"""Creates the MonitoredSession in which a training, evaluation or prediction runs.

All execution backends use this module.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from trainer.config import session_defaults
from trainer.config.run_config import RunConfig
from trainer.tensorflow_internals import monitored_session


def config_proto(config: RunConfig) -> Any:
    """Return the ConfigProto of a run's session: RunConfig.session_config, or a default."""
    if config.session_config is not None:
        return config.session_config
    return session_defaults.make_session_config(config.task if is_in_cluster(config) else None)


def is_in_cluster(config: RunConfig) -> bool:
    """Return whether TF_CONFIG makes this process a task of a cluster.

    The result is False if config.cluster, a cluster resolver, describes the cluster instead.
    """
    return config.cluster is None and bool(config.task.jobs)


class _WorkerSessionCreator(tf.compat.v1.train.SessionCreator):
    """Creates the session of a worker that trains in a cluster with a chief."""

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
            # Check every second whether the chief has initialised the variables. TensorFlow's
            # WorkerSessionCreator would check only every 30 s.
            recovery_wait_secs=1,
        )
        return manager.wait_for_session(
            self._master, config=self._proto, max_wait_secs=self._timeout_secs
        )


class _WrappingSessionCreator(tf.compat.v1.train.SessionCreator):
    """Creates a session by another SessionCreator, and lets a function wrap the session."""

    def __init__(self, creator: Any, wrap_session: Callable[[Any], Any]) -> None:
        self._creator, self._wrap_session = creator, wrap_session

    def create_session(self) -> Any:
        return self._wrap_session(self._creator.create_session())


def create_monitored_session(
    config: RunConfig,
    master: str,
    proto: Any,
    scaffold: Any,
    hooks: Sequence[Any],
    *,
    checkpoint_dir: str | None = None,
    checkpoint_path: str | None = None,
    is_chief: bool = True,
    recovers_lost_session: bool = True,
    wrap_session: Callable[[Any], Any] | None = None,
) -> Any:
    """Create a MonitoredSession that calls hooks, and restores a checkpoint if there is one.

    The session of a worker restores nothing: it waits until the chief has initialised the
    variables.

    Args:
      scaffold: a tf.compat.v1.train.Scaffold with the saver and the initialisation ops.
      recovers_lost_session: whether a new session replaces a lost session, and continues from the
        newest checkpoint.
      wrap_session: takes each new tf.compat.v1.Session, after its variables are initialised, and
        returns the object that hooks and the caller use in its place.

    Raises:
      tf.errors.DeadlineExceededError: the chief has not initialised the variables within the
        config's session_creation_timeout_secs.
    """
    if not is_chief:
        worker = _WorkerSessionCreator(
            scaffold, master, proto, config.session_creation_timeout_secs
        )
        return tf.compat.v1.train.MonitoredSession(worker, hooks=list(hooks))
    creator: Any = tf.compat.v1.train.ChiefSessionCreator(
        scaffold,
        master=master,
        config=proto,
        checkpoint_dir=checkpoint_dir,
        checkpoint_filename_with_path=checkpoint_path,
    )
    if wrap_session is not None:
        creator = _WrappingSessionCreator(creator, wrap_session)
    if recovers_lost_session:
        return tf.compat.v1.train.MonitoredSession(creator, hooks=list(hooks))
    return monitored_session._MonitoredSession(creator, list(hooks), should_recover=False)
