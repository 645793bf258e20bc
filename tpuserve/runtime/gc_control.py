"""Pauses Python's garbage collector while long-lived objects are created.

The import of TensorFlow creates millions of objects and hardly any garbage. Without a pause, the
collector scans these objects again and again while they are created.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable the collector in a with block; then exclude all objects from later collections.

    The excluded objects are those that exist at the end of the block.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # Exclude all objects that exist here from later collections, even those that existed before
        # the block.
        gc.freeze()
        gc.enable()
