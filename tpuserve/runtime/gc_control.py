"""Pauses Python's garbage collector while long-lived objects are created.

The import of TensorFlow creates millions of objects and hardly any garbage. Without a pause, the
collector scans these objects again and again while they are created. Without `gc.freeze`, every
later full collection would scan them as well. For example, the collection after a model is unloaded
would stop all requests for more than 0.3 seconds.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable the collector inside a with block, then exclude all objects from collections.

    If the collector is disabled already, the block changes nothing.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # Exclude all objects that exist now from collections, also those from before the block.
        # This is harmless: most of them belong to imported modules, which live as long as the
        # process.
        gc.freeze()
        gc.enable()
