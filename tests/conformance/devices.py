"""The devices that TPUEstimator programs are tested on: CPU, emulated TPUs and PJRT devices."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tpuserve
import trainer
from tests.pjrt_devices import pjrt_devices


@dataclass(frozen=True)
class Device:
    """A device, or a system of devices, that a program runs on.

    Attributes:
      cores: number of cores of the TPU; 0 for the CPU.
      hosts: number of hosts that the cores are spread over.
      is_compiled: whether XLA compiles the computation of a core of an emulated TPU.
      is_pjrt: whether the cores are jax's CPU devices; otherwise the TPU is emulated.
    """

    cores: int = 0
    hosts: int = 1
    is_compiled: bool = False
    is_pjrt: bool = False

    def __str__(self) -> str:
        if not self.cores:
            return "cpu"
        if self.is_pjrt:
            return f"pjrt-{self.cores}"
        return f"{self.hosts}x{self.cores // self.hosts}{'-xla' if self.is_compiled else ''}"

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Let estimators find and use this device inside a with block."""
        if not self.cores:
            yield
            return
        if self.is_pjrt:
            with pjrt_devices(self.cores):
                yield
            return
        with tpuserve.emulated_tpu(self.cores, self.hosts, compiled=self.is_compiled):
            yield

    def estimator(
        self,
        model_fn: Any,
        model_dir: Path,
        *,
        batch_size: int = 8,
        tpu_config: trainer.TPUConfig | None = None,
        params: Any = None,
        eval_on_tpu: bool = True,
        batch_axis: Any = None,
        warm_start_from: Any = None,
        **config: Any,
    ) -> trainer.TPUEstimator:
        """Return an estimator for this device, to be used inside of `chosen`."""
        return trainer.TPUEstimator(
            model_fn,
            params=params,
            config=trainer.RunConfig(
                tpu_config or trainer.TPUConfig(iterations_per_loop=2),
                model_dir=str(model_dir),
                **{"tf_random_seed": 1, **config},
            ),
            use_tpu=self.cores > 0,
            train_batch_size=batch_size,
            eval_batch_size=batch_size,
            predict_batch_size=batch_size,
            eval_on_tpu=eval_on_tpu,
            batch_axis=batch_axis,
            warm_start_from=warm_start_from,
        )


CPU = Device()


def cores(count: int, hosts: int = 1, *, compiled: bool = False) -> Device:
    """Return an emulated TPU with this number of cores."""
    return Device(count, hosts, compiled)


def variables(estimator: trainer.TPUEstimator) -> dict[str, Any]:
    """Return variable name → value, from the newest checkpoint of an estimator."""
    return {name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}
