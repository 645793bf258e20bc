"""Exports SavedModels for CPU and TPU, verifies their TPU metagraphs, and loads SavedModels.

Importing this package does not import TensorFlow. Importing some of its subpackages does, such as
`tpuserve.export`.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tpuserve.devices import emulated_tpu

if TYPE_CHECKING:
    from tpuserve.local_server.server import serve

__version__ = version("tpuserve")
__all__ = ["__version__", "emulated_tpu", "serve"]


def __getattr__(name: str) -> Any:
    """Import `serve` only when it is used: its module imports NumPy, which takes a while."""
    if name == "serve":
        from tpuserve.local_server.server import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
