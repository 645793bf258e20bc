"""Patches of TensorFlow's functions that build TPU graphs, for use with an emulated TPU.

While a TPU is emulated, a patched function calls its replacement in this module.
"""

import functools
import logging
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.tpu import topology_pb2

from tpuserve.devices import TpuSystem, find_emulated_tpu_system
from tpuserve.errors import TpuNotFound
from tpuserve.lowering.func_graph import build_and_lower
from trainer.tensorflow_internals import (
    Topology,
    TPUSystemMetadata,
    tpu,
    tpu_function,
    tpu_ops,
    tpu_system_metadata,
    tpu_topology,
)

# The modules of tpuserve that build TPU graphs.
_OUR_GRAPH_BUILDERS = (
    "trainer.backends.tpu",
    "trainer.infeed",
    "trainer.export",
    "trainer.exporting.strategies",
    "tpuserve.export",
)


def find_active_emulated_tpu() -> TpuSystem | None:
    """Return the emulated TPU for which to build a TPU graph at this point of the program.

    Returns:
      The emulated TPU; None to build the graph as TensorFlow does.
    """
    tpu_system = find_emulated_tpu_system()
    if tpu_system is None or _is_in_tpu_computation() or _is_called_by_our_builders():
        return None
    if tf.compat.v1.executing_eagerly_outside_functions():
        return None
    return tpu_system


def _is_in_tpu_computation() -> bool:
    """Return whether TensorFlow is building the body of a TPU computation at the moment."""
    return tpu_function.get_tpu_context().number_of_shards is not None


def _is_called_by_our_builders() -> bool:
    """Return whether a module of tpuserve that builds TPU graphs is on the call stack."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if any(name == module or name.startswith(f"{module}.") for module in _OUR_GRAPH_BUILDERS):
            return True
        frame = frame.f_back
    return False


def serialize_topology(tpu_system: TpuSystem) -> bytes:
    """Return the serialized TopologyProto of an emulated TPU system.

    Each chip has two cores, or one core if a host has an odd number of cores.
    """
    cores = tpu_system.tpu_cores // tpu_system.hosts
    cores_per_chip = 2 - cores % 2
    chips = cores // cores_per_chip
    columns = 2 - chips % 2
    rows = chips // columns
    topology = topology_pb2.TopologyProto(
        mesh_shape=[columns, rows * tpu_system.hosts, 1, cores_per_chip],
        num_tasks=tpu_system.hosts,
        num_tpu_devices_per_task=cores,
    )
    for host in range(tpu_system.hosts):
        for core in range(cores):
            row, column = divmod(core // cores_per_chip, columns)
            topology.device_coordinates.extend(
                [column, host * rows + row, 0, core % cores_per_chip]
            )
    return topology.SerializeToString()


def make_system_metadata(tpu_system: TpuSystem) -> TPUSystemMetadata:
    """Return the TPUSystemMetadata of an emulated TPU system.

    The object replaces what TensorFlow would read from the server of a real TPU.
    """
    return TPUSystemMetadata(
        num_cores=tpu_system.tpu_cores,
        num_hosts=tpu_system.hosts,
        num_of_cores_per_host=tpu_system.tpu_cores // tpu_system.hosts,
        topology=Topology(serialized=serialize_topology(tpu_system)),
        devices=(),
    )


logger = logging.getLogger("tensorflow.trainer")

# The type of a function that replaces a function of TensorFlow while a TPU is emulated. The
# arguments are the emulated TPU, and a functools.partial that calls TensorFlow's original function.
_Replacement = Callable[[TpuSystem, "functools.partial[Any]"], Any]

# The attribute that marks a TensorFlow function as patched, so that it is not patched a second
# time.
_PATCHED = "_builds_for_emulated_tpu"
_HOST_DEVICE = "/device:CPU:0"


def patch_builders() -> None:
    """Patch TensorFlow's functions that build TPU graphs, so that an emulated TPU can run them.

    The constant `PATCHES` lists the functions. A second call has no effect.
    """
    for module, name, replacement in PATCHES:
        _patch(module, name, replacement)


def _patch(module: ModuleType, name: str, replacement: _Replacement) -> None:
    """Patch a function of TensorFlow to call another function while a TPU is emulated."""
    original = getattr(module, name)
    if getattr(original, _PATCHED, False):
        return

    @functools.wraps(original)
    def call_replacement(*arguments: Any, **named_arguments: Any) -> Any:
        tpu_system = find_active_emulated_tpu()
        if tpu_system is None:
            return original(*arguments, **named_arguments)
        return replacement(tpu_system, functools.partial(original, *arguments, **named_arguments))

    setattr(call_replacement, _PATCHED, True)
    setattr(module, name, call_replacement)


def _build_lowered(tpu_system: TpuSystem, build: Callable[[], Any]) -> Any:
    """Call the original function that builds a TPU graph, and replace the graph's TPU ops."""
    return build_and_lower(build, compiled=tpu_system.is_compiled)


def _build_host_transfer(tpu_system: TpuSystem, build: Callable[[], Any]) -> Any:
    """Build an infeed or outfeed op of a TPU host, and replace it by ops that the CPU can run."""
    if tpu_system.hosts > 1:
        raise TpuNotFound(
            f"infeed and outfeed ops in a program's own session do not work with several hosts: "
            f"the {tpu_system} runs all hosts in one process, where device_ordinal does not say "
            f"which host is meant. Run the program with --emulate-tpu {tpu_system.tpu_cores}, "
            f"which emulates one host."
        )
    return _build_lowered(tpu_system, build)


def _build_replicated(tpu_system: TpuSystem, build: "functools.partial[Any]") -> Any:
    """Call tpu.split_compile_and_replicate, and replace its TPU ops by ops that the CPU can run."""
    inputs = build.args[1] if len(build.args) > 1 else build.keywords.get("inputs")
    replicas = len(inputs) if isinstance(inputs, list) else 1
    if replicas > tpu_system.tpu_cores:
        raise TpuNotFound(
            f"a TPU computation has {replicas} replicas, which is more than the {tpu_system} can "
            f"run. Use at most {tpu_system.tpu_cores} replicas, or run the program with "
            f"--emulate-tpu {replicas}."
        )
    logger.info(
        "TPU computation in a session of the program: %d replica%s on the %s, %s",
        replicas,
        "s" if replicas > 1 else "",
        tpu_system,
        "compiled by XLA" if tpu_system.is_compiled else "not compiled",
    )
    return _build_lowered(tpu_system, build)


def _build_initialization(tpu_system: TpuSystem, build: Callable[[], Any]) -> Any:
    """Build a constant with the serialized topology, in place of the op that initializes a TPU."""
    with tf.device(None):
        serialized = serialize_topology(tpu_system)
        return tf.constant(serialized, name="ConfigureDistributedTPU")


def _build_shutdown(tpu_system: TpuSystem, build: Callable[[], Any]) -> Any:
    with tf.device(None):
        return tf.no_op(name="ShutdownDistributedTPU")


def _return_host_device(tpu_system: TpuSystem, build: Callable[[], Any]) -> str:
    """Return this machine's CPU device, in place of the device of a TPU core or TPU host."""
    return _HOST_DEVICE


def _return_metadata(tpu_system: TpuSystem, build: Callable[[], Any]) -> Any:
    return make_system_metadata(tpu_system)


# The patches that `patch_builders` makes: a module, the name of a function in the module, and the
# replacement of the function. tpu.rewrite, replicate, shard and batch_parallel are not in the list,
# because they all call split_compile_and_replicate.
PATCHES: tuple[tuple[ModuleType, str, _Replacement], ...] = (
    (tpu, "split_compile_and_replicate", _build_replicated),
    (tpu_ops, "configure_distributed_tpu", _build_initialization),
    (tpu_ops, "shutdown_distributed_tpu", _build_shutdown),
    (tpu_ops, "infeed_enqueue", _build_host_transfer),
    (tpu_ops, "infeed_enqueue_tuple", _build_host_transfer),
    (tpu_ops, "outfeed_dequeue", _build_host_transfer),
    (tpu_ops, "outfeed_dequeue_tuple", _build_host_transfer),
    (tpu_topology, "_tpu_host_device_name", _return_host_device),
    (tpu_topology, "_tpu_device_name", _return_host_device),
    (tpu_system_metadata, "_query_tpu_system_metadata", _return_metadata),
)
