"""Reads .npz files, the format of numpy.savez."""

import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# The errors that NumPy and zipfile raise for a damaged file. RuntimeError is that of an encrypted
# member, and NotImplementedError, a kind of RuntimeError, that of an unknown compression.
_DAMAGES = (
    *(ValueError, EOFError, KeyError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)


def read_arrays(path: Path) -> dict[str, Array] | None:
    """Return the arrays of an .npz file by name; None if the file is one array without a name.

    Raises:
      ValueError: the file has another format, is damaged, or has Python objects. The text has
        "allow_pickle" if it has Python objects.
    """
    try:
        # Open the file here and not in np.load, which does not close a damaged file. Refuse
        # pickled objects, because unpickling can run code from the file.
        with path.open("rb") as opened:
            file = np.load(opened, allow_pickle=False)
            if isinstance(file, np.lib.npyio.NpzFile):
                return {name: file[name] for name in file.files}
    except _DAMAGES as error:
        raise ValueError(str(error)) from error
    return None
