"""The runtime of an emulated TPU whose hosts are several processes.

One session runs the graph on the TensorFlow servers of all these processes.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.devices import TpuSystem
from tpuserve.errors import HostLost, InvalidSetting
from trainer.backends.tpu.cluster import python_functions
from trainer.backends.tpu.cluster.session import ClusterSessionCreator
from trainer.backends.tpu.runtime.base import PreparedTargets
from trainer.backends.tpu.runtime.emulated import EmulatedRuntime
from trainer.config.cluster_hosts import ClusterHosts
from trainer.config.run_config import RunConfig
from trainer.distribution.topology import BatchTopology, EmulatedClusterSlice, Pipeline
from trainer.execution import graceful_shutdown
from trainer.hosts import task_waiting


@dataclass(frozen=True, kw_only=True)
class ClusterRuntime(EmulatedRuntime):
    """An emulated TPU system whose hosts are the processes of a TensorFlow cluster.

    Attributes:
      system: the emulated hosts and cores.
      hosts: the processes, as tasks of the cluster.
      timeout_secs: how long to wait for the restart of a lost process, in seconds.
    """

    system: EmulatedClusterSlice
    hosts: ClusterHosts
    timeout_secs: float

    def prepare_targets(self, targets: Sequence[Any], topology: BatchTopology) -> PreparedTargets:
        """Copy the targets and all ops that they need, with CPU ops in place of TPU ops.

        The CPU ops of a core run in the process that emulates the core's host.
        """
        return self._lower(targets, self.system.core_devices)

    def name_python_functions(
        self, call_input_fn: Callable[[Pipeline], Any]
    ) -> Callable[[Pipeline], Any]:
        """Wrap `call_input_fn` so that all workers of the cluster can run the input pipeline.

        A pipeline can call Python functions, for example with tf.py_function. The wrapper lets the
        workers find these functions by tokens; see `python_functions.name_functions`.
        """
        return python_functions.name_functions(call_input_fn)

    def session_config(self, proto: Any) -> Any:
        """Return a ConfigProto for a session over the servers of all hosts.

        The session has its own state on the servers. So its queues contain no elements that an
        earlier session has left.
        """
        session_config = tf.compat.v1.ConfigProto()
        session_config.CopyFrom(proto)
        session_config.isolate_session_state = True
        # Remove the device filters, which hide workers from each other. They are meant for clusters
        # with parameter servers, but this session must see all workers.
        del session_config.device_filters[:]
        # Remove the cluster definition. The servers already have a cluster definition, and refuse a
        # session with another definition.
        session_config.ClearField("cluster_def")
        return session_config

    @property
    def session_creator(self) -> Callable[..., Any]:
        """A function that creates a `ClusterSessionCreator`.

        It takes the arguments of tf.compat.v1.train.ChiefSessionCreator.
        """
        return functools.partial(
            ClusterSessionCreator,
            default_device=self.hosts.hosts[0].device,
            call_with_hosts=self._call_with_hosts,
        )

    def _call_with_hosts(self, create_session: Callable[[], Any]) -> Any:
        """Create a session once all hosts answer; wait for the restart of lost hosts.

        Args:
          create_session: creates and returns the session.

        Raises:
          GracefulExit: SIGTERM arrived during the wait.
          HostLost: a host was not restarted in time.
        """
        wait = self.hosts.others, self.timeout_secs, graceful_shutdown.exit_if_stop_is_requested
        task_waiting.wait_for_lost(*wait)
        return task_waiting.call_while_reachable(create_session, *wait)

    @contextmanager
    def initialized_system(self, topology: BatchTopology, config: RunConfig) -> Iterator[None]:
        """Return a context that translates TensorFlow's error about a lost process.

        Raises:
          HostLost: another process of the cluster was lost; the message names it.
        """
        try:
            yield
        except (tf.errors.AbortedError, tf.errors.UnavailableError) as error:
            lost = task_waiting.find_unreachable(self.hosts.others)
            if not lost:
                raise
            raise HostLost(
                f"{' and '.join(map(str, lost))} is lost: {error.message.splitlines()[0]}. Start "
                f"the process again, and then this run."
            ) from error


def make_cluster_runtime(
    hosts: ClusterHosts, tpu_system: TpuSystem, config: RunConfig, master: str = ""
) -> ClusterRuntime:
    """Return the runtime of an emulated TPU whose hosts are the processes of a cluster.

    Args:
      hosts: the processes, as tasks of the cluster.
      tpu_system: gives the number of emulated cores, which are spread evenly over the hosts.
      config: the settings of the run.
      master: the session target.

    Raises:
      InvalidSetting: the number of cores is not a multiple of the number of hosts, or `tpu_system`
        has several hosts, but not as many as the cluster.
    """
    count, cores = len(hosts.hosts), tpu_system.tpu_cores
    if tpu_system.hosts not in (1, count) or cores % count:
        raise InvalidSetting(
            f"the cluster has {count} hosts ({', '.join(map(str, hosts.hosts))}), and the emulated "
            f"TPU of {tpu_system.asked_by} {cores} cores on {tpu_system.hosts}. Give a multiple of "
            f"{count} cores, or {count}xCORES."
        )
    return ClusterRuntime(
        system=EmulatedClusterSlice(
            count, cores, host_devices=tuple(host.device for host in hosts.hosts)
        ),
        is_compiled=tpu_system.is_compiled and config.tpu_config.compile_emulated,
        requested_by=tpu_system.asked_by,
        master=master,
        hosts=hosts,
        timeout_secs=config.session_creation_timeout_secs,
    )
