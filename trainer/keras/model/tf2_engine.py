"""The two engines of tf_keras: that of TensorFlow 2, and that of TensorFlow 1's graphs.

A layer or a model of tf_keras is one of TensorFlow 1 where it is made without eager execution, and
tf_keras tells the two apart by the bases of its classes, which it changes for the whole process
whenever one is made. So a model of one engine breaks as soon as there is one of the other.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

_changing = threading.RLock()
_depth = 0

_LAYERS = ("tf_keras.src.engine.base_layer", "tf_keras.src.engine.base_layer_v1")
_MODELS = ("tf_keras.src.engine.training", "tf_keras.src.engine.training_v1")
# Its layers have the old engine whatever else is made.
_ALWAYS_OLD = "tf_keras.src.legacy_tf_layers."


def is_graph_model(model: Any) -> bool:
    """Whether a Keras model was made without eager execution, for the session of a graph."""
    # Its class says which engine it has now, not which it was made with.
    return "_originally_built_as_v1" in vars(model)


@contextlib.contextmanager
def use_tf2_engine() -> Iterator[None]:
    """Within it all of tf_keras has the engine of TensorFlow 2, and afterwards what it had.

    Models that were made without eager execution are of no use within it; those that were made
    within it are of no use outside. Other threads that want the same wait.
    """
    global _depth
    with _changing:
        changed = _classes_to_switch() if _depth == 0 else {}
        for kind, (_, new) in changed.items():
            kind.__bases__ = new
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1
            for kind, (own, _) in changed.items():
                kind.__bases__ = own


def _classes_to_switch() -> dict[type, tuple[tuple[type, ...], tuple[type, ...]]]:
    """The classes that have the old engine now: the bases of each, and those it is to have."""
    engine = sys.modules
    if any(each not in engine for each in (*_LAYERS, *_MODELS)):
        return {}
    layers, layers_v1 = (engine[each].Layer for each in _LAYERS)
    models, models_v1 = (engine[each].Model for each in _MODELS)
    new = {layers_v1: layers, models_v1: models}
    found = {}
    for kind in _subclasses(layers):
        bases = tuple(new.get(each, each) for each in kind.__bases__)
        if bases != kind.__bases__ and not kind.__module__.startswith(_ALWAYS_OLD):
            found[kind] = kind.__bases__, bases
    return found


def _subclasses(kind: type) -> list[type]:
    """A class and all that derive from it, each once, the nearest first."""
    found: list[type] = [kind]
    known = {kind}
    for each in found:
        below: list[type] = type.__subclasses__(each)
        found.extend(one for one in below if one not in known)
        known.update(below)
    return found
