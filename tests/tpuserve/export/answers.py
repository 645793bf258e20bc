"""What both metagraphs of an export answer."""

from typing import Any

import numpy as np

from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.runtime import loader

HARDWARE = TpuSystem(tpu_cores=1, hosts=1, is_emulated=True)


def both(directory: str, signature: str = "serving_default", **inputs: Any) -> dict[str, Any]:
    """The answer of {serve}, once that of {serve, tpu}, lowered and compiled, is the same."""
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
    """A batch of strings as a signature takes it."""
    return np.array([each.encode() for each in values], object)
