"""Finds the TPU system of this machine, which may be real or emulated."""

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from tpuserve.errors import InvalidSetting

EMULATION_VARIABLE = "TPUSERVE_EMULATED_TPU"
COMPILATION_VARIABLE = "TPUSERVE_EMULATED_TPU_COMPILED"

_initialisation_lock = threading.Lock()
_is_initialised = False
_emulated_in_process: "TpuSystem | None" = None

_TOPOLOGY = re.compile(r"(?:(?P<hosts>[1-9]\d*)x)?(?P<cores>[1-9]\d*)")


@dataclass(frozen=True)
class TpuSystem:
    """The TPU cores that this process runs TPU graphs on: real, emulated or none.

    Attributes:
      tpu_cores: the number of cores of the whole system; 0 without a TPU.
      hosts: the number of machines that the cores are attached to; 0 without a TPU.
      is_emulated: whether the CPU of this machine emulates the cores.
      is_compiled: on an emulated system, whether XLA compiles the computation of a core, and so
        refuses the ops that a TPU compiler refuses.
      asked_by: the function, command or environment variable that requested emulation.
    """

    tpu_cores: int = 0
    hosts: int = 0
    is_emulated: bool = False
    is_compiled: bool = True
    asked_by: str = EMULATION_VARIABLE

    @property
    def has_tpu(self) -> bool:
        """Whether TPU graphs can run, on a real or an emulated system."""
        return self.tpu_cores > 0

    def __str__(self) -> str:
        if not self.has_tpu:
            return "no TPU found"
        if not self.is_emulated:
            return f"{self.tpu_cores} TPU cores found"
        cores = f"{self.tpu_cores} core" + ("s" if self.tpu_cores > 1 else "")
        hosts = f" on {self.hosts} hosts" if self.hosts > 1 else ""
        return f"emulated TPU of {cores}{hosts}, from {self.asked_by}"


class EmulatedTpu:
    """An emulated TPU system of this process. As a context manager, it ends with the with block."""

    def __init__(self, hardware: TpuSystem) -> None:
        """Start the emulation: from now on, `find_tpu_system` returns `hardware`."""
        global _emulated_in_process
        self.hardware = hardware
        self._previous = _emulated_in_process
        _emulated_in_process = hardware

    def __enter__(self) -> TpuSystem:
        return self.hardware

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the emulation: restore the TPU system that was in use before."""
        global _emulated_in_process
        _emulated_in_process = self._previous


def emulated_tpu(cores: int = 8, hosts: int = 1, *, compiled: bool = True) -> EmulatedTpu:
    """Emulate a TPU system on the CPU of this machine, for this process.

    In a with statement, the emulation ends with the block. The emulation overrides the environment
    variables that `find_tpu_system` reads.

    Args:
      cores: the number of TPU cores of all hosts together.
      hosts: the number of machines that the cores are spread over; this process emulates them all.
      compiled: whether XLA compiles the computation of a core, as a TPU compiler would. False
        starts faster, and does not refuse ops that XLA cannot compile.

    Raises:
      InvalidSetting: `cores` is not a multiple of `hosts`, or a number is less than 1.
    """
    if cores < 1 or hosts < 1 or cores % hosts:
        raise InvalidSetting(
            f"emulated_tpu got cores={cores} and hosts={hosts}. Give at least one host, and a "
            f"number of cores that is a multiple of the number of hosts."
        )
    return EmulatedTpu(
        TpuSystem(cores, hosts, is_emulated=True, is_compiled=compiled, asked_by="emulated_tpu()")
    )


def find_tpu_system(environ: Mapping[str, str] = os.environ) -> TpuSystem:
    """Return the TPU system to use: emulated if emulation is requested, otherwise real.

    Emulation must be requested: by `emulated_tpu`, or by the environment. TPUSERVE_EMULATED_TPU=8
    emulates 8 cores on one host, and =2x4 two hosts with 4 cores each. Unset, empty and 0 request
    no emulation. TPUSERVE_EMULATED_TPU_COMPILED=0 disables the compilation by XLA.

    Args:
      environ: the environment variables.

    Raises:
      InvalidSetting: a variable has an invalid value.
    """
    if _emulated_in_process is not None:
        return _emulated_in_process
    value = environ.get(EMULATION_VARIABLE, "").strip()
    if value not in ("", "0"):
        return _emulated(value, is_compiled=_is_compiled(environ))
    return _real()


def _emulated(value: str, *, is_compiled: bool) -> TpuSystem:
    match = _TOPOLOGY.fullmatch(value)
    if match is None:
        raise InvalidSetting(
            f"{EMULATION_VARIABLE}={value!r} is not a valid TPU topology. Set it to a number of "
            f"cores (8), to HOSTSxCORES (2x4), or unset it."
        )
    hosts = int(match["hosts"] or 1)
    return TpuSystem(
        tpu_cores=hosts * int(match["cores"]),
        hosts=hosts,
        is_emulated=True,
        is_compiled=is_compiled,
    )


def _is_compiled(environ: Mapping[str, str]) -> bool:
    value = environ.get(COMPILATION_VARIABLE, "").strip()
    if value not in ("", "0", "1"):
        raise InvalidSetting(
            f"{COMPILATION_VARIABLE} is {value!r}. Set it to 1 to compile the computations of an "
            f"emulated TPU with XLA, to 0 to run them op by op, or unset it, which means 1."
        )
    return value != "0"


def _real() -> TpuSystem:
    # Import TensorFlow only when it is needed: an emulated system is found without it.
    import tensorflow as tf

    cores = len(tf.config.list_physical_devices("TPU"))
    return TpuSystem(tpu_cores=cores, hosts=1 if cores else 0)


def initialise_tpu_system() -> None:
    """Initialise the real TPU system, once in a process, before any TPU graph runs."""
    import tensorflow as tf

    global _is_initialised
    with _initialisation_lock:
        if _is_initialised:
            return
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.tpu.initialize_system())
        _is_initialised = True
