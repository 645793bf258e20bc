"""Manages the variables and the compiled executables of a model on one PJRT device."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tpuserve.devices import jax_client
from tpuserve.errors import DeviceMemoryExhausted, ModelExecutionError, TpuserveError

Array: TypeAlias = np.ndarray[Any, Any]

# The largest number of executables on a device that were compiled when a request with new input
# shapes came. Clients choose the shapes, so a limit is necessary.
_MAX_EXECUTABLES = 64

ReadVariable: TypeAlias = Callable[[str], Array]
"""Returns the value of a variable by its name."""


class DeviceCore:
    """A PJRT device of jax, with the variables and executables that one model has on it."""

    def __init__(self, device: Any, read_variable: ReadVariable) -> None:
        self.device = device
        self._read_variable = read_variable
        self._variables: dict[str, Any] = {}
        self._executables: dict[Any, Callable[..., Any]] = {}
        # The keys of the executables that may be removed, the oldest first.
        self._dropped_first: deque[Any] = deque()
        self.platform = jax_client.platform_of(device)
        self.num_running = 0

    def get_executable(self, key: Any) -> Callable[..., list[Array]] | None:
        """Return the function that `install` has returned for a key; None if there is none."""
        return self._executables.get(key)

    def compile(self, exported: Any, feeds: Sequence[Any], variables: Sequence[str]) -> Any:
        """Compile a StableHLO module for this device; return it as a jax.stages.Compiled."""
        import jax

        specs = [jax_client.make_array_spec(spec.shape, spec.dtype, self.device) for spec in feeds]
        resident = [self.get_variable(name) for name in variables]

        def call(values: Any, *inputs: Any) -> Any:
            return exported.call(*inputs, *values)

        return jax.jit(call).lower(resident, *specs).compile()

    def install(
        self, key: Any, compiled: Any, variables: Sequence[str], *, is_kept: bool
    ) -> Callable[..., list[Array]]:
        """Store an executable, so that `get_executable` returns it for later requests.

        Args:
          is_kept: whether the executable stays until `close`. If False, it may be removed, because
            only the newest `_MAX_EXECUTABLES` of such executables are stored.

        Returns:
          A function that takes the inputs of a request as arrays, runs the executable, and returns
          the results as arrays.
        """
        import jax

        resident = [self.get_variable(name) for name in variables]

        def execute(*inputs: Array) -> list[Array]:
            try:
                results = compiled(resident, *inputs)
                # Wait for each result with block_until_ready before the conversion to NumPy.
                return [np.asarray(result.block_until_ready()) for result in results]
            except jax.errors.JaxRuntimeError as error:
                raise self._device_error(error) from error

        self._executables[key] = execute
        if not is_kept:
            self._dropped_first.append(key)
            if len(self._dropped_first) > _MAX_EXECUTABLES:
                self._executables.pop(self._dropped_first.popleft(), None)
        return execute

    def get_variable(self, name: str) -> Any:
        """Return a variable as a jax array on the device.

        The first call for a variable copies the value to the device.
        """
        import jax

        if name not in self._variables:
            try:
                value = jax.device_put(self._read_variable(name), self.device)
            except jax.errors.JaxRuntimeError as error:
                raise self._device_error(error) from error
            self._variables[name] = value
        return self._variables[name]

    def _device_error(self, error: Exception) -> TpuserveError:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        if "RESOURCE_EXHAUSTED" not in text:
            return ModelExecutionError(f"device {self.device}: {text}")
        return DeviceMemoryExhausted(
            f"device {self.device} has no memory left: {text}. Send fewer rows at a time, or "
            f"serve fewer models on the device."
        )

    def close(self) -> None:
        """Free the memory of the variables and the executables on the device."""
        self._executables = {}
        self._dropped_first.clear()
        for value in self._variables.values():
            value.delete()
        self._variables = {}
