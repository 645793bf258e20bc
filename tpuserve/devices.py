"""The TPU system of this machine: a real one, an emulated one, or none."""

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from tpuserve.errors import InvalidSetting

EMULATION_VARIABLE = "TPUSERVE_EMULATED_TPU"
COMPILATION_VARIABLE = "TPUSERVE_EMULATED_TPU_COMPILED"

_initialising = threading.Lock()
_is_initialised = False
_emulated_in_process: "TpuSystem | None" = None

_TOPOLOGY = re.compile(r"(?:(?P<hosts>[1-9]\d*)x)?(?P<cores>[1-9]\d*)")


@dataclass(frozen=True)
class TpuSystem:
    """What there is to run a TPU graph on.

    Attributes:
      tpu_cores: cores of the whole TPU system; 0 where there is none.
      hosts: machines that the cores are attached to; 0 where there is no TPU.
      is_emulated: the cores are this machine's CPU, because someone asked for that.
      is_compiled: on an emulated system, XLA compiles what a core computes, and refuses what the
        compiler of a TPU refuses.
      asked_by: who asked for emulation.
    """

    tpu_cores: int = 0
    hosts: int = 0
    is_emulated: bool = False
    is_compiled: bool = True
    asked_by: str = EMULATION_VARIABLE

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
        return f"emulated TPU of {cores}{hosts}, from {self.asked_by}"


class EmulatedTpu:
    """An emulated TPU system in place from now on; as a context manager, until the block ends."""

    def __init__(self, hardware: TpuSystem) -> None:
        """Takes the place of whatever find_tpu_system would find."""
        global _emulated_in_process
        self.hardware = hardware
        self._previous = _emulated_in_process
        _emulated_in_process = hardware

    def __enter__(self) -> TpuSystem:
        return self.hardware

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Puts back what was there before."""
        global _emulated_in_process
        _emulated_in_process = self._previous


def emulated_tpu(cores: int = 8, hosts: int = 1, *, compiled: bool = True) -> EmulatedTpu:
    """Emulates a TPU system on this machine's CPU, for this process, from now on.

    Used in a with statement, it ends with the block. The environment can ask for the same, and
    this call goes before it: see `find_tpu_system`.

    Args:
      cores: TPU cores of all hosts together.
      hosts: machines that the cores are spread over; they all live in this process.
      compiled: whether XLA compiles what a core computes, as a TPU's compiler would. False
        starts faster, and refuses less.

    Raises:
      InvalidSetting: the cores are no multiple of the hosts, or there are none.
    """
    if cores < 1 or hosts < 1 or cores % hosts:
        raise InvalidSetting(
            f"emulated_tpu got cores={cores} and hosts={hosts}. Give at least one host, and a "
            f"number of cores that divides among the hosts."
        )
    return EmulatedTpu(
        TpuSystem(cores, hosts, is_emulated=True, is_compiled=compiled, asked_by="emulated_tpu()")
    )


def find_tpu_system(environ: Mapping[str, str] = os.environ) -> TpuSystem:
    """The TPU system to use: the emulated one if somebody asks for it, else a real one.

    Emulation is never chosen by itself. `emulated_tpu` asks for it, or the environment:
    TPUSERVE_EMULATED_TPU=8 for 8 cores on one host, =2x4 for two hosts with 4 cores each. Unset,
    empty and 0 mean none. TPUSERVE_EMULATED_TPU_COMPILED=0 turns XLA's compiling off.

    Raises:
      InvalidSetting: a variable holds something else.
    """
    if _emulated_in_process is not None:
        return _emulated_in_process
    asked = environ.get(EMULATION_VARIABLE, "").strip()
    if asked not in ("", "0"):
        return _emulated(asked, is_compiled=_is_compiled(environ))
    return _real()


def _emulated(asked: str, *, is_compiled: bool) -> TpuSystem:
    match = _TOPOLOGY.fullmatch(asked)
    if match is None:
        raise InvalidSetting(
            f"{EMULATION_VARIABLE}={asked!r} is no TPU topology. Set it to a number of cores "
            f"(8), to HOSTSxCORES (2x4), or unset it."
        )
    hosts = int(match["hosts"] or 1)
    return TpuSystem(
        tpu_cores=hosts * int(match["cores"]),
        hosts=hosts,
        is_emulated=True,
        is_compiled=is_compiled,
    )


def _is_compiled(environ: Mapping[str, str]) -> bool:
    asked = environ.get(COMPILATION_VARIABLE, "").strip()
    if asked not in ("", "0", "1"):
        raise InvalidSetting(
            f"{COMPILATION_VARIABLE} is {asked!r}. Set it to 1 to have XLA compile what an "
            f"emulated TPU computes, to 0 not to, or unset it for 1."
        )
    return asked != "0"


def _real() -> TpuSystem:
    # Imported here because asking for a TPU costs the import of TensorFlow, and an emulated
    # system is known without it.
    import tensorflow as tf

    cores = len(tf.config.list_physical_devices("TPU"))
    return TpuSystem(tpu_cores=cores, hosts=1 if cores else 0)


def initialise_tpu_system() -> None:
    """Brings up the real TPU system, once a process: graphs cannot run on it before."""
    import tensorflow as tf

    global _is_initialised
    with _initialising:
        if _is_initialised:
            return
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.tpu.initialize_system())
        _is_initialised = True
