"""Imports TensorFlow for a server: without Keras, and without blocking the server's other threads.

The import of TensorFlow holds Python's global interpreter lock (GIL) while it loads TensorFlow's
C++ library, which takes seconds on a slow disk.
"""

import contextlib
import ctypes
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tpuserve.runtime import gc_control, tf_logging

# Packages that TensorFlow imports if they are installed, although it works without them. Keras in
# turn imports pandas, Matplotlib and scikit-learn if they are installed.
_UNUSED_PACKAGES = ("keras", "tf_keras", "jax")
# The library with TensorFlow's C++ code. It is most of TensorFlow's 1.3 GB.
_LIBRARY = "libtensorflow_cc.so.*"


def import_tensorflow_for_serving() -> None:
    """Import TensorFlow without Keras and JAX, which only training and conversion use.

    Log lines about missing GPUs are dropped. Afterwards `tf.keras` can still be used, but `import
    tensorflow.keras` fails.
    """
    if "tensorflow" in sys.modules:
        return
    with tf_logging.filtered_log(), gc_control.gc_disabled():
        _load_library()
        with _hide_packages(_UNUSED_PACKAGES), _temporary_directory_name():
            importlib.import_module("tensorflow")


def _load_library() -> None:
    """Load TensorFlow's C++ library as the import of TensorFlow does, but without Python's GIL."""
    if not sys.platform.startswith("linux"):
        return
    # Import the modules that TensorFlow imports before it loads its C++ library, as in TensorFlow's
    # pywrap_tensorflow.py.
    importlib.import_module("hashlib")
    importlib.import_module("ssl")
    spec = importlib.util.find_spec("tensorflow")
    dlopen: Any = ctypes.CDLL(None).dlopen
    dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    for directory in (spec.submodule_search_locations or ()) if spec is not None else ():
        for path in Path(directory).glob(_LIBRARY):
            dlopen(os.fsencode(path), os.RTLD_NOW | os.RTLD_LOCAL)


@contextlib.contextmanager
def _hide_packages(names: Sequence[str]) -> Iterator[None]:
    """Let the import of packages fail in a with block, as if they were not installed."""
    hidden: dict[str, Any] = {name: None for name in names if name not in sys.modules}
    sys.modules.update(hidden)
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def _temporary_directory_name() -> Iterator[None]:
    """Let tempfile.gettempdir() succeed in a with block if the system has no writable directory."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = os.sep
    else:
        yield
        return
    try:
        yield
    finally:
        tempfile.tempdir = None
