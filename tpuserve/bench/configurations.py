"""The settings of a server that an analysis measures: engines and batching."""

import importlib.util
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tpuserve import devices, tags
from tpuserve.devices import jax_client
from tpuserve.tags import TagSet
from tpuserve.tpu_hardware import chips

BATCH_REQUESTS = (8, 32)
"""The sizes of the largest batch with the timeout policy, in requests."""

TIMEOUTS_MICROS = (0, 1000, 5000)
"""How long a batch waits for more requests with the timeout policy, in microseconds."""


@dataclass(frozen=True)
class ModelEngine:
    """A way in which a server can run a model, such as TensorFlow, XLA or a TPU."""

    name: str
    flags: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    compiles_each_size: bool = True


@dataclass(frozen=True)
class Configuration:
    """Settings of the server that are measured together.

    Attributes:
      name: a name for tables, such as "xla, batching".
      flags: flag of the server → value, including the flags of the engine, but not
        --batching_parameters_file.
    """

    name: str
    engine: ModelEngine
    flags: Mapping[str, Any]
    batching_parameters: str = ""


def find_engines(tag_sets: Collection[TagSet]) -> list[ModelEngine]:
    """Return the engines of this machine that can run a model."""
    # Leave out the engines that need jax if jax, an optional dependency, is not installed.
    has_jax = importlib.util.find_spec("jax") is not None
    has_tpu_graph = tags.SERVE_TPU in tag_sets
    engines = []
    if tags.SERVE in tag_sets or not has_tpu_graph:
        # Select the CPU metagraph by a flag, because a server on a machine with a TPU would select
        # the TPU metagraph.
        flags = {"saved_model_tags": "serve"} if has_tpu_graph else {}
        engines.append(ModelEngine("tensorflow", {"engine": "tensorflow", **flags}, {}, False))
        if has_jax:
            engines.append(ModelEngine("xla", {"engine": "xla", **flags}))
    if not has_tpu_graph:
        return engines
    flags = {"saved_model_tags": "serve,tpu"}
    if chips.find_device_files():
        return [*engines, ModelEngine("TPU", flags)]
    runtime = devices.RUNTIME_VARIABLE
    engines.append(ModelEngine("emulated TPU", flags, {runtime: devices.EMULATED}))
    if has_jax:
        on_cpu = {runtime: devices.PJRT, jax_client.PLATFORM_VARIABLE: "cpu"}
        engines.append(ModelEngine("TPU by PJRT", flags, on_cpu))
    return engines


def without_batching(engine: ModelEngine) -> Configuration:
    """Return the configuration that runs each request alone."""
    return Configuration(engine.name, engine, {**engine.flags, "enable_batching": False})


def with_batching(engine: ModelEngine) -> Configuration:
    """Return the configuration with the server's default batching policy.

    While the model runs a batch, new requests wait.
    """
    flags = {**engine.flags, "enable_batching": True}
    return Configuration(f"{engine.name}, batching", engine, flags)


def with_timeouts(engine: ModelEngine, rows: int, limit_ms: float) -> list[Configuration]:
    """Return the configurations with TensorFlow Serving's batching policy.

    There is one for each combination of a largest batch size and a timeout.

    Args:
      rows: the number of examples in the largest request. The batch sizes are multiples of it.
      limit_ms: the latency goal in milliseconds. Timeouts that are not below the goal are left out.
    """
    result = []
    for requests in BATCH_REQUESTS:
        for micros in TIMEOUTS_MICROS:
            if micros >= limit_ms * 1e3:
                continue
            text = (
                f'batching_policy: "timeout"\n'
                f"max_batch_size {{ value: {requests * rows} }}\n"
                f"batch_timeout_micros {{ value: {micros} }}\n"
                f"num_batch_threads {{ value: {num_processors()} }}\n"
            )
            if engine.compiles_each_size:
                text += "".join(
                    f"allowed_batch_sizes: {rows << power}\n"
                    for power in range(requests.bit_length())
                )
            batching = with_batching(engine)
            name = f"{engine.name}, {requests * rows} rows, {micros / 1e3:g} ms"
            result.append(replace(batching, name=name, batching_parameters=text))
    return result


def num_processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))
