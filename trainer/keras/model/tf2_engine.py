"""Switches tf_keras between its base classes for TensorFlow 2 and those for TensorFlow 1.

tf_keras has two implementations of Layer and Model: base_layer and training for TensorFlow 2, and
base_layer_v1 and training_v1 for programs without eager execution.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from trainer import keras_internals

_switch_lock = threading.RLock()
_depth = 0


def is_graph_model(model: Any) -> bool:
    """Return whether a Keras model was built without eager execution, as in TensorFlow 1.

    Its variables then live in the session of a graph.
    """
    # Check an attribute of the model, and not the base classes of its class: tf_keras can have
    # changed the base classes since the model was built.
    return "_originally_built_as_v1" in vars(model)


@contextlib.contextmanager
def use_tf2_engine() -> Iterator[None]:
    """Give tf_keras's layer and model classes their TensorFlow 2 base classes inside a context.

    The end of the context restores the previous base classes.
    """
    global _depth
    with _switch_lock:
        switched = _classes_to_switch() if _depth == 0 else {}
        for kind, (_, tf2_bases) in switched.items():
            kind.__bases__ = tf2_bases
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1
            for kind, (original_bases, _) in switched.items():
                kind.__bases__ = original_bases


def _classes_to_switch() -> dict[type, tuple[tuple[type, ...], tuple[type, ...]]]:
    """Find the tf_keras classes that currently have base classes for TensorFlow 1."""
    tf2_classes = keras_internals.get_loaded_engine_classes()
    switched = {}
    for root in list(tf2_classes.values())[:1]:
        for kind in _all_subclasses(root):
            bases = tuple(tf2_classes.get(base, base) for base in kind.__bases__)
            is_legacy = kind.__module__.startswith(keras_internals.LEGACY_TF_LAYERS)
            if bases != kind.__bases__ and not is_legacy:
                switched[kind] = kind.__bases__, bases
    return switched


def _all_subclasses(root: type) -> list[type]:
    kinds: list[type] = [root]
    known = {root}
    for kind in kinds:
        subclasses: list[type] = type.__subclasses__(kind)
        kinds.extend(subclass for subclass in subclasses if subclass not in known)
        known.update(subclasses)
    return kinds
