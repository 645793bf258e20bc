"""A session that runs a copy of the default graph on the TensorFlow servers of several processes.

The processes emulate the hosts of a TPU. The copy leaves out the ops that need a TPU.
"""

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.backends.tpu.cluster.session_graph import copy_runnable_part
from trainer.tensorflow_internals import session_interface

# How long, in seconds, to wait for a session to close. A lost process can block the close forever.
_CLOSE_SECS = 5.0

_COMPOSITES = (tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)


class ClusterSession(session_interface.SessionInterface):
    """Wraps the session of a copied graph; fetches and feeds are tensors of the original graph."""

    def __init__(self, session: Any, graph: Any) -> None:
        """Wrap a session.

        Args:
          session: the session of the copied graph, in which ops have their original names.
          graph: the original tf.Graph, to which the tensors of hooks belong.
        """
        self._session, self._graph = session, graph

    @property
    def graph(self) -> Any:
        """The original tf.Graph."""
        return self._graph

    @property
    def sess_str(self) -> Any:
        """The target of the session."""
        return self._session.sess_str

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run the ops of the copied graph that have the same names as the fetches.

        The arguments are those of tf.compat.v1.Session.run.
        """
        feeds = None
        if feed_dict is not None:
            feeds = {self._in_copy(key): value for key, value in feed_dict.items()}
        return self._session.run(self._in_copy(fetches), feeds, options, run_metadata)

    def close(self) -> None:
        """Close the session; return after a few seconds if a lost process keeps it from closing."""
        # Close the session in a thread, because the call can block forever: TensorFlow waits until
        # all processes have answered, and a lost process never answers.
        thread = threading.Thread(target=self._session.close, daemon=True)
        thread.start()
        thread.join(_CLOSE_SECS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def _in_copy(self, fetches: Any) -> Any:
        """Replace each tensor and op of nested fetches by its namesake in the copied graph."""
        # Do not use tf.nest for dicts, because it sorts the keys. A MonitoredSession fetches dicts
        # whose keys are hooks, which cannot be compared.
        if isinstance(fetches, dict):
            return type(fetches)((key, self._in_copy(value)) for key, value in fetches.items())
        if isinstance(fetches, tuple) and hasattr(fetches, "_fields"):
            return type(fetches)(*map(self._in_copy, fetches))
        if isinstance(fetches, list | tuple):
            return type(fetches)(map(self._in_copy, fetches))
        if isinstance(fetches, _COMPOSITES):
            return tf.nest.map_structure(self._element, fetches, expand_composites=True)
        return self._element(fetches)

    def _element(self, fetch: Any) -> Any:
        return find_in_copy(self._session.graph, self._graph, fetch)


class ClusterSessionCreator(tf.compat.v1.train.SessionCreator):
    """Creates a ClusterSession, and restores a checkpoint if there is one.

    Only the leader uses this class: the process of the cluster that builds the graph.
    """

    def __init__(
        self,
        scaffold: Any,
        *,
        master: str,
        config: Any,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        default_device: str,
        call_with_hosts: Callable[[Callable[[], Any]], Any],
    ) -> None:
        """Store the settings with which `create_session` creates sessions.

        Args:
          scaffold: see tf.compat.v1.train.ChiefSessionCreator.
          master: the session target.
          config: the ConfigProto of the session.
          checkpoint_dir: directory whose newest checkpoint is restored; None to use
            checkpoint_filename_with_path.
          checkpoint_filename_with_path: the checkpoint to restore; None to use checkpoint_dir, or
            to restore nothing.
          default_device: the device on which ops without a device run.
          call_with_hosts: calls a function that creates a session, and returns the session. It
            waits for lost processes only for a limited time, whereas TensorFlow would wait forever.
        """
        self._scaffold, self._master, self._config = scaffold, master, config
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_path = checkpoint_filename_with_path
        self._default_device = default_device
        self._call_with_hosts = call_with_hosts
        self._copy: Any = None

    def create_session(self) -> Any:
        """Create a session after the servers of all processes of the cluster have answered."""
        scaffold = self._scaffold.finalize() or self._scaffold
        graph = tf.compat.v1.get_default_graph()
        if self._copy is None:
            self._copy = copy_runnable_part(graph, self._default_device)

        def find(fetch: Any) -> Any:
            return None if fetch is None else find_in_copy(self._copy, graph, fetch)

        def find_feeds(feeds: Any) -> Any:
            return None if feeds is None else {find(key): value for key, value in feeds.items()}

        init_fn = scaffold.init_fn
        manager = tf.compat.v1.train.SessionManager(
            local_init_op=find(scaffold.local_init_op),
            local_init_feed_dict=find_feeds(scaffold.local_init_feed_dict),
            ready_op=find(scaffold.ready_op),
            ready_for_local_init_op=find(scaffold.ready_for_local_init_op),
            graph=self._copy,
        )

        def prepare() -> Any:
            with self._copy.as_default():
                return manager.prepare_session(
                    self._master,
                    saver=scaffold.saver,
                    checkpoint_dir=self._checkpoint_dir,
                    checkpoint_filename_with_path=self._checkpoint_path,
                    config=self._config,
                    init_op=find(scaffold.init_op),
                    init_feed_dict=find_feeds(scaffold.init_feed_dict),
                    init_fn=init_fn and (lambda session: init_fn(ClusterSession(session, graph))),
                )

        return ClusterSession(self._call_with_hosts(prepare), graph)


def find_in_copy(copy: Any, graph: Any, fetch: Any) -> Any:
    """Return the tensor or op of a copied graph that has the name of a fetch.

    Args:
      copy: the copied graph.
      graph: the original graph.
      fetch: a tensor, an op or a variable of the original graph, or its name.

    Raises:
      ValueError: the copied graph does not contain the tensor or op, because it needs a TPU.
    """
    element = graph.as_graph_element(fetch)
    try:
        return copy.as_graph_element(element.name)
    except KeyError:
        raise ValueError(
            f"{element.name} is a part of the TPU's computation, which a session cannot run by "
            f"itself. Fetch a tensor that is built outside of model_fn, or use a host_call."
        ) from None
