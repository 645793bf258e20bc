"""Runs both metagraphs of an export and compares their outputs."""

from typing import Any

import numpy as np

from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.runtime import loader

HARDWARE = TpuSystem(tpu_cores=1, hosts=1, is_emulated=True)


def both(directory: str, signature: str = "serving_default", **inputs: Any) -> dict[str, Any]:
    """Check that both metagraphs give the same outputs; return the outputs of {serve}.

    The metagraph {serve, tpu} is lowered to the CPU and compiled by XLA.

    Args:
      directory: the version directory of the export.
      signature: the name of the signature.
      **inputs: input alias → array.
    """
    cpu, tpu = (
        loader.load(directory, tag_set, HARDWARE).run(signature, inputs)
        for tag_set in (tags.SERVE, tags.SERVE_TPU)
    )
    assert cpu.keys() == tpu.keys()
    for alias, expected in cpu.items():
        if expected.dtype == object:
            np.testing.assert_array_equal(tpu[alias], expected)
        else:
            np.testing.assert_allclose(tpu[alias], expected, rtol=1e-5, atol=1e-5)
    return cpu


def strings(*values: str) -> Any:
    """Return an object array of bytes [number of strings], as a string input takes it."""
    return np.array([value.encode() for value in values], object)
