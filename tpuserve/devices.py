"""The TPU system of this machine: a real one, an emulated one, or none."""

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from tpuserve.errors import InvalidSetting

EMULATION_VARIABLE = "TPUSERVE_EMULATED_TPU"

_initialising = threading.Lock()
_is_initialised = False

_TOPOLOGY = re.compile(r"(?:(?P<hosts>[1-9]\d*)x)?(?P<cores>[1-9]\d*)")


@dataclass(frozen=True)
class Hardware:
    """What there is to run a TPU graph on.

    Attributes:
      tpu_cores: cores of the whole TPU system; 0 where there is none.
      hosts: machines that the cores are attached to; 0 where there is no TPU.
      is_emulated: the cores are this machine's CPU, because someone asked for that.
    """

    tpu_cores: int = 0
    hosts: int = 0
    is_emulated: bool = False

    @property
    def has_tpu(self) -> bool:
        """Whether TPU graphs can run, on a real system or an emulated one."""
        return self.tpu_cores > 0

    def __str__(self) -> str:
        if not self.has_tpu:
            return "no TPU found"
        if not self.is_emulated:
            return f"{self.tpu_cores} TPU cores found"
        cores = f"{self.tpu_cores} core" + ("s" if self.tpu_cores > 1 else "")
        hosts = f" on {self.hosts} hosts" if self.hosts > 1 else ""
        return f"emulated TPU of {cores}{hosts}, from {EMULATION_VARIABLE}"


def find_hardware(environ: Mapping[str, str] = os.environ) -> Hardware:
    """The TPU system to use: the emulated one if the environment asks for it, else a real one.

    Emulation is never chosen by itself: TPUSERVE_EMULATED_TPU=8 asks for 8 cores on one host,
    =2x4 for two hosts with 4 cores each. Unset, empty and 0 mean none.

    Raises:
      InvalidSetting: the variable holds something else.
    """
    asked = environ.get(EMULATION_VARIABLE, "").strip()
    if asked not in ("", "0"):
        return _emulated(asked)
    return _real()


def _emulated(asked: str) -> Hardware:
    match = _TOPOLOGY.fullmatch(asked)
    if match is None:
        raise InvalidSetting(
            f"{EMULATION_VARIABLE}={asked!r} is no TPU topology. Set it to a number of cores "
            f"(8), to HOSTSxCORES (2x4), or unset it."
        )
    hosts = int(match["hosts"] or 1)
    return Hardware(tpu_cores=hosts * int(match["cores"]), hosts=hosts, is_emulated=True)


def _real() -> Hardware:
    # Imported here because asking for a TPU costs the import of TensorFlow, and an emulated
    # system is known without it.
    import tensorflow as tf

    cores = len(tf.config.list_physical_devices("TPU"))
    return Hardware(tpu_cores=cores, hosts=1 if cores else 0)


def initialise() -> None:
    """Brings up the real TPU system, once a process: graphs cannot run on it before."""
    import tensorflow as tf

    global _is_initialised
    with _initialising:
        if _is_initialised:
            return
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.tpu.initialize_system())
        _is_initialised = True
