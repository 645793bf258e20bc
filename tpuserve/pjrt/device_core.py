"""One PJRT device with the variables and the executables that it holds for a model."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tpuserve import jax_client
from tpuserve.errors import ModelExecutionError

Array: TypeAlias = np.ndarray[Any, Any]

ReadVariable: TypeAlias = Callable[[str], Array]
"""Returns the value of a variable by its name."""


class DeviceCore:
    """A device of jax's PJRT client, and the memory that one model uses on the device.

    Attributes:
      platform: the platform of the device, "tpu" or "cpu".
      num_running: how many runs are on the device now; only the owner of the core changes it.
    """

    def __init__(self, device: Any, read_variable: ReadVariable) -> None:
        """Initialise a core that holds nothing yet.

        Args:
          device: the jax device.
          read_variable: returns the value of a variable by its name.
        """
        self._device = device
        self._read_variable = read_variable
        self._variables: dict[str, Any] = {}
        self._executables: dict[Any, Callable[..., Any]] = {}
        self.platform: str = device.platform
        self.num_running = 0

    def get_executable(self, key: Any) -> Callable[..., list[Array]] | None:
        """Return the executable that `compile` has stored under a key; None if there is none."""
        return self._executables.get(key)

    def compile(
        self, key: Any, exported: Any, feeds: Sequence[Any], variables: Sequence[str]
    ) -> Callable[..., list[Array]]:
        """Compile a module for this device, and store the executable under a key.

        Args:
          key: identifies the module and the shapes of its arguments.
          exported: the module as a jax.export.Exported. Its arguments are the feeds, then the
            variables.
          feeds: a jax.ShapeDtypeStruct for each feed.
          variables: the names of the variables.

        Returns:
          A function that takes the feeds as arrays, runs the module, and returns its results.
        """
        import jax

        specs = [jax_client.make_array_spec(spec.shape, spec.dtype, self._device) for spec in feeds]
        resident = [self.get_variable(name) for name in variables]

        def call(values: Any, *inputs: Any) -> Any:
            return exported.call(*inputs, *values)

        compiled = jax.jit(call).lower(resident, *specs).compile()

        def execute(*inputs: Array) -> list[Array]:
            try:
                results = compiled(resident, *inputs)
                return [np.asarray(result) for result in results]
            except jax.errors.JaxRuntimeError as error:
                text = (str(error).splitlines() or [type(error).__name__])[0]
                raise ModelExecutionError(f"device {self._device}: {text}") from error

        self._executables[key] = execute
        return execute

    def get_variable(self, name: str) -> Any:
        """Return a variable on the device; the first call copies its value to the device."""
        import jax

        if name not in self._variables:
            self._variables[name] = jax.device_put(self._read_variable(name), self._device)
        return self._variables[name]

    def close(self) -> None:
        """Free the memory of the variables and the executables on the device."""
        self._executables = {}
        for value in self._variables.values():
            value.delete()
        self._variables = {}
