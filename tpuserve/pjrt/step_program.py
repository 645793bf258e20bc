"""Runs training steps of all replicas on PJRT devices.

A dispatch is one call of a compiled executable, which runs several steps without the host.
"""

import hashlib
import importlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuserve.devices import jax_client
from tpuserve.errors import Code, CodedError, DeviceMemoryExhausted
from tpuserve.graph.batch_rows import filler, pad_rows
from tpuserve.pjrt.device_core import Array
from tpuserve.pjrt.executable_cache import ExecutableCache
from tpuserve.pjrt.replica_step import ReplicaStep
from tpuserve.pjrt.row_shards import put_shard, take_shard
from tpuserve.pjrt.step_loop import AXIS, StepLayout, build_step_loop
from tpuserve.stablehlo.abstract_tensor import sizes_of

# Part of each key in the cache of executables. Change it when `build_step_loop` changes, so that
# old executables are not found.
_LOOP_VERSION = "step loop 4"
# The largest size in bytes of the batches and results of one dispatch on one device.
_MAX_BYTES = 2**26
# The largest number of steps in a dispatch. With more steps, a step would not be faster, but the
# first results would come later, and Ctrl-C would take longer to stop the program.
_MAX_STEPS = 64


@dataclass(frozen=True)
class Dispatch:
    """The results of one dispatch, which runs several training steps.

    The arrays are jax arrays that the devices may still be computing. In their shapes, `capacity`
    is `count` rounded up to a power of two.

    Attributes:
      results: for each tensor that a step sends to the host, an array [replicas, capacity, ...]. Of
        the second dimension, only the first `count` elements are valid.
      is_sent: bool [capacity], whether each step sends its tensors.
      is_finite: bool [checked variables], whether each checked variable has only finite values.
    """

    count: int
    results: Sequence[Any]
    is_sent: Any
    is_finite: Any


class StepProgram:
    """Runs training steps on all replicas, and keeps the variables on the devices in between.

    Each device runs one replica. A dispatch runs up to `max_steps` steps without the host. If the
    devices belong to several processes, each process has a StepProgram.

    Attributes:
      max_steps: the largest number of steps in one dispatch.

    Args:
      checked: indices of the variables in which to look for NaN and infinity after each
        dispatch.
      cache: stores executables on disk, so that later processes need not compile. None for no
        cache.
    """

    def __init__(
        self,
        step: ReplicaStep,
        devices: Sequence[Any],
        checked: Sequence[int] = (),
        cache: ExecutableCache | None = None,
    ) -> None:
        jax: Any = importlib.import_module("jax")

        self.step = step
        self._devices, self._checked = tuple(devices), tuple(checked)
        self.local_replicas = [
            replica
            for replica, device in enumerate(self._devices)
            if device.process_index == jax.process_index()
        ]
        self._is_local = len(self.local_replicas) == len(self._devices)
        self._mesh = jax.sharding.Mesh(np.array(self._devices), (AXIS,))
        self._replicated = jax.sharding.NamedSharding(self._mesh, jax.sharding.PartitionSpec())
        self._by_replica = jax.sharding.NamedSharding(self._mesh, jax.sharding.PartitionSpec(AXIS))
        # Sizes of the dimensions in `step.unknown_sizes` → the step for these sizes.
        self._steps: dict[tuple[int, ...], ReplicaStep] = {}
        self._executables: dict[tuple[int, ...], Any] = {}
        # The sizes of the unknown dimensions in earlier batches, rounded up. Later batches are not
        # made smaller. Only used if the step has `batch_variables`.
        self._sizes: tuple[int, ...] = ()
        if cache is None or jax.process_count() > 1:
            # With several processes, do not cache executables: a process cannot load an executable
            # for devices of other processes.
            cache = ExecutableCache(None)
        self._cache = cache
        self._variables: list[Any] = [None] * len(step.variables)
        self.max_steps = find_max_steps(step)

    def set_variable(self, index: int, value: Array) -> None:
        """Copy the value of a variable to all devices of this process."""
        sharding = self.step.row_shardings.get(index)
        if sharding is not None:
            shards = (take_shard(value, sharding, replica) for replica in self.local_replicas)
            self.set_shards(index, shards)
            return
        with self._explaining_memory(index, value.nbytes):
            self._variables[index] = self._put(value, self._replicated)

    def set_shards(self, index: int, shards: Iterable[Array]) -> None:
        """Copy a variable whose rows are divided among replicas to the devices of this process.

        Args:
          shards: for each of `local_replicas`, an array [rows_per_replica, ...] with the rows of
            this replica, as `row_shards.take_shard` returns them. It has the dtype of the variable.
        """
        jax: Any = importlib.import_module("jax")

        spec = self.step.variables_of_replica[index]
        rows, *rest = sizes_of(spec.shape)
        num_bytes = math.prod((rows, *rest)) * spec.dtype.size
        with self._explaining_memory(index, num_bytes):
            # Take the shards from the iterator one after the other, so that the host need not have
            # all of them in memory at once.
            arrays = [
                jax.device_put(shard, self._devices[replica])
                for replica, shard in zip(self.local_replicas, shards, strict=True)
            ]
            self._variables[index] = jax.make_array_from_single_device_arrays(
                (rows * len(self._devices), *rest), self._by_replica, arrays
            )

    @contextmanager
    def _explaining_memory(self, index: int, num_bytes: int) -> Iterator[None]:
        jax: Any = importlib.import_module("jax")

        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            text = _first_line(error)
            part = "the rows of a replica of " if index in self.step.row_shardings else ""
            name = self.step.variables[index].name
            variable = f"{part}the variable {name!r} of {num_bytes} bytes"
            if "RESOURCE_EXHAUSTED" not in text:
                raise CodedError(
                    f"the devices cannot take {variable}: {text}.", Code.ABORTED
                ) from error
            raise DeviceMemoryExhausted(
                f"the devices have no memory left for {variable}: {text.rstrip('.')}. Each device "
                f"holds all variables of the training, the optimizer's included. Use a smaller "
                f"model, or an optimizer with fewer variables."
            ) from error

    def get_variables(self, indices: Sequence[int]) -> list[Array]:
        """Return the values of variables.

        If the devices belong to several processes, use `get_shards` for a variable whose rows are
        divided among the replicas.
        """
        jax: Any = importlib.import_module("jax")

        whole = [index for index in indices if index not in self.step.row_shardings]
        shards = [self._variables[index].addressable_data(0) for index in whole]
        values = dict(zip(whole, map(np.asarray, jax.device_get(shards)), strict=True))
        for index in indices:
            if index not in values:
                values[index] = self._join_shards(index)
        return [values[index] for index in indices]

    def get_shards(self, index: int) -> Iterator[Array]:
        """Yield, for each of `local_replicas`, the rows of a variable that its device stores.

        Yields:
          An array [rows_per_replica, ...] with the dtype of the variable. Its last rows may be
          padding.
        """
        on_device = {
            shard.device: shard.data for shard in self._variables[index].addressable_shards
        }
        for replica in self.local_replicas:
            yield np.asarray(on_device[self._devices[replica]])

    def _join_shards(self, index: int) -> Array:
        spec = self.step.variables[index]
        sharding = self.step.row_shardings[index]
        value = np.empty(sizes_of(spec.shape), spec.dtype.as_numpy_dtype)
        for replica, shard in zip(self.local_replicas, self.get_shards(index), strict=True):
            put_shard(value, sharding, replica, shard)
        return value

    def find_sizes(self, steps: Sequence[Sequence[Sequence[Array]]]) -> list[int]:
        """Return the largest size of each dimension in `ReplicaStep.unknown_sizes`."""
        return [
            max((values[index].shape[dimension] for step in steps for values in step), default=1)
            for index, dimension in self.step.unknown_sizes
        ]

    def put_batches(
        self, steps: Sequence[Sequence[Sequence[Array]]], count: int, sizes: Sequence[int] = ()
    ) -> list[Any]:
        """Copy the batches of several steps to the devices of this process.

        Args:
          count: the number of steps to make room for, at most `max_steps`; the same in all
            processes, and at least the length of `steps`.
          sizes: the sizes of the dimensions in `ReplicaStep.unknown_sizes`, at least those of the
            batches, and the same in all processes.

        Returns:
          For each tensor of a batch a jax array [replicas, capacity, ...]. The capacity is `count`
          rounded up to a power of two.

        Raises:
          CodedError: a device reports an error, such as too little memory.
        """
        leading = (len(self.local_replicas), round_up_capacity(count))
        rounded = tuple(round_up_capacity(size) for size in sizes)
        if self.step.batch_variables:
            # Never use a smaller size than for earlier batches: the variables in `batch_variables`
            # still hold data of the last batch, and cannot become smaller.
            rounded = tuple(map(max, rounded, self._sizes or rounded))
            self._sizes = rounded
        batches = [
            np.zeros((*leading, *sizes_of(feed.shape)), feed.dtype.as_numpy_dtype)
            for feed in self._step_for(rounded).feeds
        ]
        for index, _ in self.step.unknown_sizes:
            batches[index].fill(filler(batches[index].dtype))
        for number, step in enumerate(steps):
            for replica, values in enumerate(step):
                for batch, value in zip(batches, values, strict=True):
                    place: Any = (replica, number, *map(slice, value.shape))
                    batch[place] = value
        with _explaining("the devices cannot take the next batches"):
            return [self._put(batch, self._by_replica) for batch in batches]

    def _step_for(self, sizes: tuple[int, ...]) -> ReplicaStep:
        if not sizes:
            return self.step
        if sizes not in self._steps:
            self._steps[sizes] = self.step.with_sizes(sizes)
        return self._steps[sizes]

    def dispatch(
        self,
        batches: Sequence[Any],
        count: int,
        *,
        first: int = 0,
        seed: int,
        step: int,
        done: int,
        iterations: int,
    ) -> Dispatch:
        """Run several training steps on all replicas.

        Raises:
          CodedError: a device reports an error, such as too little memory.
        """
        jax: Any = importlib.import_module("jax")

        capacity = batches[0].shape[1] if batches else round_up_capacity(count)
        sizes = tuple(
            batches[index].shape[2 + dimension] for index, dimension in self.step.unknown_sizes
        )
        position = np.array([seed, step, done, iterations], np.int64)
        with _explaining(f"the devices failed in steps {step} to {step + count - 1}"):
            self._pad_batch_variables(self._step_for(sizes))
            variables = tuple(self._variables)
            arguments = (variables, tuple(batches), np.int64(first), position, np.int64(count))
            key = (capacity, *sizes)
            if key not in self._executables:
                self._executables[key] = self._compile(self._step_for(sizes), capacity, arguments)
            variables, results, is_sent, is_finite = self._executables[key](*arguments)
            self._variables = list(variables)
            if self._devices[0].platform == "cpu":
                # Wait until the dispatch has ended. CPU devices share the threads of the process.
                jax.block_until_ready(variables)
        return Dispatch(count, results, is_sent, is_finite)

    def _pad_batch_variables(self, step: ReplicaStep) -> None:
        """Pad the variables whose first dimension is the number of embedding ids in a batch."""
        for index in step.batch_variables:
            rows, *_ = sizes_of(step.variables[index].shape)
            if len(self._variables[index]) < rows:
                value = np.asarray(self._variables[index].addressable_data(0))
                self._variables[index] = self._put(pad_rows(value, rows), self._replicated)

    def _put(self, value: Array, sharding: Any) -> Any:
        """Copy this process's part of an array to its devices; return the whole as a jax array."""
        jax: Any = importlib.import_module("jax")

        if self._is_local:
            return jax.device_put(value, sharding)
        return jax.make_array_from_process_local_data(sharding, np.asarray(value))

    def _compile(self, step: ReplicaStep, capacity: int, arguments: tuple[Any, ...]) -> Any:
        """Compile the loop over training steps, or load its executable from the cache."""
        platform = jax_client.platform_of(self._devices[0])
        exported, layout = step.export(platform), StepLayout.from_step(step, self._checked)
        if not self._is_local:
            # With devices of several processes, executables are not cached. jax compiles at the
            # first call.
            return build_step_loop(exported, layout, self._mesh, capacity, gathers_results=True)
        module = hashlib.sha256(exported.mlir_module_serialized).hexdigest()
        content = (_LOOP_VERSION, module, repr(layout), repr(capacity), repr(self._device_ids()))
        key = self._cache.make_key(self._devices[0], *content)
        compiled = self._cache.find(key, *self._devices)
        if compiled is None:
            loop = build_step_loop(exported, layout, self._mesh, capacity)
            compiled = loop.lower(*arguments).compile()
            self._cache.store(key, compiled)
        return compiled

    def _device_ids(self) -> list[int]:
        return [device.id for device in self._devices]


@contextmanager
def _explaining(failure: str) -> Iterator[None]:
    """Convert the errors that jax raises in a `with` block to an error about the failure."""
    jax: Any = importlib.import_module("jax")

    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        raise CodedError(
            f"{failure}: {_first_line(error)}. If memory is short, use a smaller batch size.",
            Code.ABORTED,
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def find_max_steps(step: ReplicaStep) -> int:
    """Return the largest number of training steps in one dispatch.

    It is a power of two up to `_MAX_STEPS`, such that the batches and results of the steps take at
    most `_MAX_BYTES` on a device.
    """
    num_bytes = sum(
        math.prod(sizes_of(tensor.shape)) * tensor.dtype.size
        for tensor in (*step.feeds, *step.results)
    )
    count = 1
    while count < _MAX_STEPS and 2 * count * num_bytes <= _MAX_BYTES:
        count *= 2
    return count


def round_up_capacity(count: int) -> int:
    """Round a number of steps, or another size, up to a power of two.

    XLA compiles an executable for each rounded number, which takes long.
    """
    return 1 << max(count - 1, 0).bit_length()
