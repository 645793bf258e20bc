"""TensorFlow's builders of TPU graphs, with what they build lowered where the TPU is emulated."""

import functools
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensorflow as tf

from tpuserve.devices import TpuSystem
from tpuserve.errors import TpuNotFound
from tpuserve.lowering.func_graph import build_and_lower
from trainer.compat.emulation import topology
from trainer.compat.emulation.active import find_active_emulated_tpu
from trainer.tensorflow_internals import tpu, tpu_ops, tpu_system_metadata, tpu_topology

logger = logging.getLogger("tensorflow.trainer")

_MARK = "_builds_for_emulated_tpu"
_HOST = "/device:CPU:0"


def _replace(module: ModuleType, name: str, emulating: Callable[..., Any]) -> None:
    """Puts a function in the place of another, which it gets along with the emulated TPU."""
    original = getattr(module, name)
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def function(*arguments: Any, **named: Any) -> Any:
        hardware = find_active_emulated_tpu()
        if hardware is None:
            return original(*arguments, **named)
        return emulating(hardware, functools.partial(original, *arguments, **named))

    setattr(function, _MARK, True)
    setattr(module, name, function)


def _lowered(hardware: TpuSystem, build: Callable[[], Any]) -> Any:
    return build_and_lower(build, compiled=hardware.is_compiled)


def _host_end(hardware: TpuSystem, build: Callable[[], Any]) -> Any:
    if hardware.hosts > 1:
        raise TpuNotFound(
            f"a session of the program's own feeds a TPU of several hosts, and the {hardware} has "
            f"them in one process, where their cores cannot be told apart by device_ordinal. Run "
            f"the program with --emulate-tpu {hardware.tpu_cores}, which is one host."
        )
    return _lowered(hardware, build)


def _replicated(hardware: TpuSystem, build: "functools.partial[Any]") -> Any:
    inputs = build.args[1] if len(build.args) > 1 else build.keywords.get("inputs")
    replicas = len(inputs) if isinstance(inputs, list) else 1
    if replicas > hardware.tpu_cores:
        raise TpuNotFound(
            f"a TPU computation of {replicas} replicas has no place on the {hardware}. Give it at "
            f"most {hardware.tpu_cores}, or run the program with --emulate-tpu {replicas}."
        )
    logger.info(
        "a TPU computation of a session of the program's own: %d replica%s on the %s, %s",
        replicas,
        "s" if replicas > 1 else "",
        hardware,
        "compiled by XLA" if hardware.is_compiled else "not compiled",
    )
    return _lowered(hardware, build)


def _configured(hardware: TpuSystem, build: Callable[[], Any]) -> Any:
    with tf.device(None):
        return tf.constant(topology.serialize_topology(hardware), name="ConfigureDistributedTPU")


def _shut_down(hardware: TpuSystem, build: Callable[[], Any]) -> Any:
    with tf.device(None):
        return tf.no_op(name="ShutdownDistributedTPU")


def _this_host(hardware: TpuSystem, build: Callable[[], Any]) -> str:
    return _HOST


def _metadata(hardware: TpuSystem, build: Callable[[], Any]) -> Any:
    return topology.make_system_metadata(hardware)


# rewrite, replicate, shard, batch_parallel and their split_compile forms all call the first.
PATCHES: tuple[tuple[ModuleType, str, Callable[..., Any]], ...] = (
    (tpu, "split_compile_and_replicate", _replicated),
    (tpu_ops, "configure_distributed_tpu", _configured),
    (tpu_ops, "shutdown_distributed_tpu", _shut_down),
    (tpu_ops, "infeed_enqueue", _host_end),
    (tpu_ops, "infeed_enqueue_tuple", _host_end),
    (tpu_ops, "outfeed_dequeue", _host_end),
    (tpu_ops, "outfeed_dequeue_tuple", _host_end),
    (tpu_topology, "_tpu_host_device_name", _this_host),
    (tpu_topology, "_tpu_device_name", _this_host),
    (tpu_system_metadata, "_query_tpu_system_metadata", _metadata),
)


def patch_builders() -> None:
    """Has TensorFlow's own functions build for the emulated TPU, wherever they are named."""
    for module, name, emulating in PATCHES:
        _replace(module, name, emulating)
