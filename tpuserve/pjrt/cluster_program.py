"""Runs the XLA clusters of a served model on PJRT devices.

An XLA cluster is a function that XLA compiles as a whole.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tpuserve.devices import jax_client
from tpuserve.errors import InvalidTensor, ModelExecutionError, UnsupportedOnTpu
from tpuserve.pjrt.device_core import Array, DeviceCore, ReadVariable
from tpuserve.pjrt.executable_cache import ExecutableCache
from tpuserve.pjrt.exported_module import export_module
from tpuserve.stablehlo.cluster_finder import XlaCluster
from tpuserve.stablehlo.translator import StableHloTranslator

# The largest number of StableHLO modules that are kept in memory. There is one for each combination
# of input shapes, which clients choose, so a limit is necessary.
_MAX_CACHED = 256


@dataclass(frozen=True)
class _ClusterModule:
    exported: Any
    feeds: Sequence[Any]
    variables: Sequence[str]


class ClusterProgram:
    """Translates the XLA clusters of a model to StableHLO, compiles them, and runs them.

    A cluster is a function of the graph that XLA compiles as a whole. It is translated once for
    each combination of input shapes, and compiled for each device.

    Args:
      graph: a GraphDef without TPU ops, whose function library has the clusters.
      clusters: function name → the cluster, whose argument shapes may be unknown.
      cache: stores executables on disk, so that later processes need not compile.
      forbids_endless_loops: whether to raise UnsupportedOnTpu for a cluster with a loop whose
        number of iterations XLA does not know.
    """

    def __init__(
        self,
        graph: Any,
        clusters: Mapping[str, XlaCluster],
        devices: Sequence[Any],
        read_variable: ReadVariable,
        *,
        cache: ExecutableCache,
        forbids_endless_loops: bool = False,
    ) -> None:
        self._cache = cache
        self._forbids_endless_loops = forbids_endless_loops
        self._clusters = clusters
        self._translator = StableHloTranslator(
            graph, platform=jax_client.platform_of(devices[0]).upper()
        )
        self._cores = [DeviceCore(device, read_variable) for device in devices]
        self._modules: dict[Any, _ClusterModule] = {}
        # This lock is held while a cluster is translated or compiled: the translation registers
        # functions with TensorFlow, which is not thread-safe.
        self._compile_lock = threading.Lock()
        self._lock = threading.Lock()
        self._is_closed = False

    def run(self, function: str, feeds: Sequence[Array]) -> list[Array]:
        """Run a cluster on the device with the fewest runs in progress."""
        feeds = [np.asarray(feed) for feed in feeds]
        key = (function, *[feed.shape for feed in feeds])
        core = self._acquire_core()
        try:
            execute = core.get_executable(key)
            if execute is None:
                cluster = self._with_shapes(function, [feed.shape for feed in feeds])
                execute = self._compile(key, cluster, core, is_kept=False)
            return execute(*feeds)
        except UnsupportedOnTpu as error:
            # Report an invalid input: the load of the model has translated the cluster for other
            # shapes without an error, so the input shapes of this request cause the error.
            raise InvalidTensor(str(error)) from error
        finally:
            with self._lock:
                core.num_running -= 1

    def compile(self, cluster: XlaCluster) -> None:
        """Compile a cluster for all devices before requests need it."""
        shapes = [tensor.shape for tensor in cluster.arguments if tensor.variable is None]
        key = (cluster.function, *shapes)
        for core in self._cores:
            if core.get_executable(key) is None:
                self._compile(key, cluster, core, is_kept=True)

    def close(self) -> None:
        """Free the memory of the model on all devices. Later runs raise ModelExecutionError."""
        with self._lock:
            self._is_closed = True
        with self._compile_lock:
            self._modules = {}
            for core in self._cores:
                core.close()

    def _acquire_core(self) -> DeviceCore:
        with self._lock:
            if self._is_closed:
                raise ModelExecutionError("the model is closed")
            core = min(self._cores, key=lambda candidate: candidate.num_running)
            core.num_running += 1
            return core

    def _with_shapes(self, function: str, shapes: Sequence[Any]) -> XlaCluster:
        cluster, remaining = self._clusters[function], iter(shapes)
        arguments = tuple(
            tensor if tensor.variable is not None else replace(tensor, shape=next(remaining))
            for tensor in cluster.arguments
        )
        return XlaCluster(function, arguments)

    def _compile(self, key: Any, cluster: XlaCluster, core: DeviceCore, *, is_kept: bool) -> Any:
        with self._compile_lock:
            execute = core.get_executable(key)
            if execute is not None:
                return execute
            cache_key = self._cache.make_key(
                core.device,
                self._translator.fingerprint(cluster),
                str(self._forbids_endless_loops),
            )
            compiled = self._cache.find(cache_key, core.device)
            if compiled is None:
                compiled = self._compile_module(key, cluster, core)
                self._cache.store(cache_key, compiled)
            return core.install(key, compiled, _variable_names(cluster), is_kept=is_kept)

    def _compile_module(self, key: Any, cluster: XlaCluster, core: DeviceCore) -> Any:
        module = self._modules.get(key)
        if module is None:
            if len(self._modules) >= _MAX_CACHED:
                self._modules = {}
            module = self._modules[key] = self._translate(cluster, core)
        compiled = core.compile(module.exported, module.feeds, module.variables)
        if self._forbids_endless_loops and _has_endless_loop(compiled.as_text()):
            raise UnsupportedOnTpu(
                f"the computation {cluster.function} has a loop without a known number of "
                f"iterations, and XLA cannot stop a run at its deadline"
            )
        return compiled

    def _translate(self, cluster: XlaCluster, core: DeviceCore) -> _ClusterModule:
        feeds = [
            jax_client.make_array_spec(
                [size or 0 for size in tensor.shape or ()], tensor.dtype.as_numpy_dtype
            )
            for tensor in cluster.arguments
            if tensor.variable is None
        ]
        names = _variable_names(cluster)
        variables = [core.get_variable(name) for name in names]
        arguments = [
            *feeds,
            *(jax_client.make_array_spec(value.shape, value.dtype) for value in variables),
        ]
        exported = export_module(self._translator.translate(cluster), arguments, core.platform)
        return _ClusterModule(exported, feeds, names)


def _variable_names(cluster: XlaCluster) -> list[str]:
    return list(
        dict.fromkeys(
            tensor.variable.name for tensor in cluster.arguments if tensor.variable is not None
        )
    )


def _has_endless_loop(optimised_hlo: str) -> bool:
    return any(
        " while(" in line and '"known_trip_count"' not in line
        for line in optimised_hlo.splitlines()
    )
