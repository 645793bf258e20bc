"""Finds the devices on which this process runs TPU graphs."""

from tpuserve.devices.tpu_system import (
    EMULATED,
    EMULATION_VARIABLE,
    PJRT,
    RUNTIME_VARIABLE,
    EmulatedTpu,
    TpuSystem,
    emulated_tpu,
    find_emulated_tpu_system,
    find_pjrt_platform,
    find_tpu_system,
    initialise_tpu_system,
)

__all__ = [
    "EMULATED",
    "EMULATION_VARIABLE",
    "PJRT",
    "RUNTIME_VARIABLE",
    "EmulatedTpu",
    "TpuSystem",
    "emulated_tpu",
    "find_emulated_tpu_system",
    "find_pjrt_platform",
    "find_tpu_system",
    "initialise_tpu_system",
]
