"""Finds the TPU system that this process uses: a real TPU, an emulated TPU, or none."""

import dataclasses
import importlib.util
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from tpuserve.devices import jax_client
from tpuserve.errors import InvalidSetting
from tpuserve.tpu_hardware import chips

EMULATION_VARIABLE = "TPUSERVE_EMULATED_TPU"
COMPILATION_VARIABLE = "TPUSERVE_EMULATED_TPU_COMPILED"
RUNTIME_VARIABLE = "TPUSERVE_TPU_RUNTIME"

PJRT, TENSORFLOW, EMULATED = "pjrt", "tensorflow", "emulated"
"""The values of TPUSERVE_TPU_RUNTIME."""

_initialisation_lock = threading.Lock()
_is_initialised = False
_emulated_in_process: "TpuSystem | None" = None

_TOPOLOGY = re.compile(r"(?:(?P<hosts>[1-9]\d*)x)?(?P<cores>[1-9]\d*)")


@dataclass(frozen=True)
class TpuSystem:
    """The TPU cores on which this process runs TPU graphs: real, emulated or none.

    Attributes:
      tpu_cores: the number of cores of the whole system; 0 without a TPU.
      hosts: the number of machines that the cores are attached to; 0 without a TPU.
      pjrt_platform: the platform of the devices, "tpu", "cpu" or "cuda", if jax's PJRT client runs
        them; otherwise empty.
    """

    tpu_cores: int = 0
    hosts: int = 0
    is_emulated: bool = False
    is_compiled: bool = True
    asked_by: str = EMULATION_VARIABLE
    pjrt_platform: str = ""

    @property
    def is_run_by_tensorflow(self) -> bool:
        """Whether TensorFlow's own TPU runtime runs the TPU graphs."""
        return self.has_tpu and not self.is_emulated and not self.pjrt_platform

    @property
    def has_tpu(self) -> bool:
        """Whether this process has a real or an emulated TPU to run TPU graphs on."""
        return self.tpu_cores > 0

    @property
    def device(self) -> str:
        """The kind of device that runs the TPU graphs, "CPU", "TPU" or "CUDA"."""
        return "CPU" if self.is_emulated else self.pjrt_platform.upper() or "TPU"

    def __str__(self) -> str:
        if not self.has_tpu:
            return "no TPU found"
        plural = "s" if self.tpu_cores > 1 else ""
        if self.pjrt_platform:
            return f"{self.tpu_cores} PJRT device{plural} of the platform {self.pjrt_platform}"
        if not self.is_emulated:
            return f"{self.tpu_cores} TPU cores found"
        cores = f"{self.tpu_cores} core{plural}"
        hosts = f" on {self.hosts} hosts" if self.hosts > 1 else ""
        return f"emulated TPU of {cores}{hosts}, from {self.asked_by}"


class EmulatedTpu:
    """An emulated TPU system of this process; a context manager that ends the emulation at exit."""

    def __init__(self, hardware: TpuSystem) -> None:
        global _emulated_in_process
        self.hardware = hardware
        self._previous = _emulated_in_process
        _emulated_in_process = hardware

    def __enter__(self) -> TpuSystem:
        return self.hardware

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the emulation, and restore the TPU system that was used before it."""
        global _emulated_in_process
        _emulated_in_process = self._previous


def emulated_tpu(cores: int = 8, hosts: int = 1, *, compiled: bool = True) -> EmulatedTpu:
    """Emulate a TPU system on the CPU of this machine, for this process.

    In a with statement, the emulation ends with the block. The emulation overrides the environment
    variables that `find_tpu_system` reads.

    Args:
      compiled: whether XLA compiles the computation of a core, as a TPU compiler would. With False,
        the first step comes sooner, and ops that XLA cannot compile are not refused.
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
    """Return the TPU system that this process uses to run TPU graphs.

    The environment variable TPUSERVE_TPU_RUNTIME selects the system:

    - "emulated": an emulated TPU, with one core if TPUSERVE_EMULATED_TPU is unset.
    - "pjrt": the devices of jax's PJRT client. TPUSERVE_PJRT_PLATFORM selects their platform:
      "tpu", which is the default, "cpu" or "cuda".
    - "tensorflow": the TPU of TensorFlow's own runtime, or no TPU.
    - unset: an emulated TPU if TPUSERVE_EMULATED_TPU requests one; otherwise PJRT devices if the
      machine has the device files of a TPU, and jax and libtpu are installed; otherwise the same as
      "tensorflow".

    `emulated_tpu` takes precedence over the environment.

    Raises:
      ExtraNotInstalled, TpuNotFound: PJRT is selected, and jax or its devices are missing.
    """
    emulated = find_emulated_tpu_system(environ)
    if emulated is not None:
        return emulated
    platform = find_pjrt_platform(environ)
    if platform:
        return TpuSystem(len(jax_client.list_devices(platform)), 1, pjrt_platform=platform)
    return _find_tensorflow_tpu()


def find_pjrt_platform(environ: Mapping[str, str] = os.environ) -> str:
    """Return the platform of the PJRT devices that `find_tpu_system` selects, without starting jax.

    Args:
      environ: the environment variables.

    Returns:
      "tpu", "cpu" or "cuda"; empty if `find_tpu_system` selects no PJRT devices.

    Raises:
      InvalidSetting: a variable has an invalid value.
    """
    if find_emulated_tpu_system(environ) is not None:
        return ""
    runtime = environ.get(RUNTIME_VARIABLE, "").strip()
    if runtime == PJRT or (not runtime and _has_tpu_for_jax()):
        return jax_client.find_platform(environ)
    return ""


def find_emulated_tpu_system(environ: Mapping[str, str] = os.environ) -> TpuSystem | None:
    """Return the emulated TPU system that the process uses; None if the process emulates no TPU."""
    if _emulated_in_process is not None:
        return _emulated_in_process
    runtime = environ.get(RUNTIME_VARIABLE, "").strip()
    if runtime not in ("", PJRT, TENSORFLOW, EMULATED):
        raise InvalidSetting(
            f"{RUNTIME_VARIABLE} is {runtime!r}. Set it to {PJRT}, {TENSORFLOW} or {EMULATED}, "
            f"or unset it to let the machine decide."
        )
    cores = environ.get(EMULATION_VARIABLE, "").strip()
    if runtime == EMULATED or (not runtime and cores not in ("", "0")):
        is_requested = cores not in ("", "0")
        return dataclasses.replace(
            _parse_emulated_system(
                cores if is_requested else "1", is_compiled=_is_compiled(environ)
            ),
            asked_by=EMULATION_VARIABLE if is_requested else RUNTIME_VARIABLE,
        )
    return None


def _has_tpu_for_jax() -> bool:
    packages = all(importlib.util.find_spec(name) for name in ("jax", "libtpu"))
    return packages and bool(chips.find_device_files())


def _parse_emulated_system(value: str, *, is_compiled: bool) -> TpuSystem:
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


def _find_tensorflow_tpu() -> TpuSystem:
    # Import TensorFlow only in this function, because the import is slow. Emulated systems and PJRT
    # devices are found without TensorFlow.
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
