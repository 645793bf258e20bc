"""Runs an all-reduce over all PJRT devices of this machine, as training does for gradients.

    python -m tpuserve.diagnosis.all_reduce PLATFORM

and prints the fields of an AllReduce as one line of JSON.
"""

import dataclasses
import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpuserve.devices import jax_client
from tpuserve.errors import TpuserveError

_PREFIX = "all-reduce: "


@dataclass(frozen=True)
class AllReduce:
    """The result of an all-reduce over the PJRT devices of this machine.

    Attributes:
      devices: the type of each device, such as "TPU v5 lite".
      memory_bytes: the memory of one device in bytes; None if jax does not report it.
      sums: the sum that each device has received. The first device contributes 1, the second
        2, and so on.
      error: why the all-reduce has failed, one line; empty if it ran.
    """

    platform: str
    devices: tuple[str, ...] = ()
    runtime: str = ""
    memory_bytes: int | None = None
    sums: tuple[float, ...] = ()
    error: str = ""

    @property
    def is_correct(self) -> bool:
        """Whether each of the n devices has the sum n (n + 1) / 2; False without devices."""
        size = len(self.devices)
        return bool(size) and self.sums == (size * (size + 1) / 2,) * size


def run_all_reduce(platform: str, timeout_s: float) -> AllReduce:
    """Start a process that runs an all-reduce over all PJRT devices, and return its result.

    Args:
      timeout_s: the time in seconds after which the process is ended.
    """
    command = [sys.executable, "-m", __name__, platform]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return AllReduce(platform, error=f"no result within {timeout_s:g} s")
    for line in done.stdout.splitlines():
        if line.startswith(_PREFIX):
            fields = json.loads(line.removeprefix(_PREFIX))
            fields.update(devices=tuple(fields["devices"]), sums=tuple(fields["sums"]))
            return AllReduce(**fields)
    last_line = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return AllReduce(platform, error=f"exit status {done.returncode}: {last_line.strip()}")


def sum_over_devices(devices: Sequence[Any]) -> tuple[float, ...]:
    """Run an all-reduce to which the first device contributes 1, the second 2, and so on."""
    import numpy as np

    jax: Any = importlib.import_module("jax")
    mesh = jax.sharding.Mesh(np.array(devices), ("device",))
    spec = jax.sharding.PartitionSpec("device")
    values = np.arange(1, len(devices) + 1, dtype=np.float32)
    all_reduce = jax.shard_map(
        lambda value: jax.lax.psum(value, "device"),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
    )
    sums = jax.jit(all_reduce)(jax.device_put(values, jax.sharding.NamedSharding(mesh, spec)))
    return tuple(float(shard.data[0]) for shard in sums.addressable_shards)


def _all_reduce(platform: str) -> AllReduce:
    try:
        devices = jax_client.list_devices(platform)
    except TpuserveError as error:
        return AllReduce(platform, error=str(error))
    return AllReduce(
        platform,
        devices=tuple(device.device_kind for device in devices),
        runtime=" ".join(devices[0].client.platform_version.split()),
        memory_bytes=(devices[0].memory_stats() or {}).get("bytes_limit"),
        sums=sum_over_devices(devices),
    )


if __name__ == "__main__":
    print(_PREFIX + json.dumps(dataclasses.asdict(_all_reduce(sys.argv[1]))), flush=True)
