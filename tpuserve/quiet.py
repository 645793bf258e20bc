"""TensorFlow imported without what it says about hardware that nobody asked for."""

import importlib
import os
import re
import sys
import tempfile

# On a machine without a GPU the runtime says so before its log level counts.
_NOISE = re.compile(
    rb"before absl::InitializeLog|cudart_stub|cuda_platform|cpu_feature_guard|oneDNN"
    rb"|To enable the following instructions"
)


def import_tensorflow() -> None:
    """Imports TensorFlow; on standard error comes all that it says but for known noise.

    The noise is written by C++ straight to file descriptor 2, so that is what is redirected
    while the import runs: call this before threads of the process have anything to log.
    """
    if "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    original = os.dup(2)
    try:
        with tempfile.TemporaryFile() as said:
            os.dup2(said.fileno(), 2)
            try:
                importlib.import_module("tensorflow")
            finally:
                os.dup2(original, 2)
                said.seek(0)
                os.write(2, b"".join(line for line in said if not _NOISE.search(line)))
    finally:
        os.close(original)
