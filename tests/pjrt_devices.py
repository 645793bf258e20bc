"""A context in which jax has several CPU devices in the test's process."""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tpuserve import devices
from tpuserve.devices import jax_client


@contextmanager
def pjrt_devices(count: int) -> Iterator[tuple[Any, ...]]:
    """Give jax `count` CPU devices inside a context, and run TPU graphs on them by PJRT."""
    from jax.extend import backend

    jax: Any = importlib.import_module("jax")

    selected = {devices.RUNTIME_VARIABLE: "pjrt", jax_client.PLATFORM_VARIABLE: "cpu"}
    before = jax.config.jax_num_cpu_devices
    # Discard jax's CPU client: jax reads the number of devices only when it creates a client.
    backend.clear_backends()
    jax.config.update("jax_num_cpu_devices", count)
    try:
        with mock.patch.dict(os.environ, selected):
            cpu_devices = jax_client.list_devices("cpu")
            assert len(cpu_devices) == count
            yield cpu_devices
    finally:
        backend.clear_backends()
        jax.config.update("jax_num_cpu_devices", before)
