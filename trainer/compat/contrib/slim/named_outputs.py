"""tf.contrib.slim.utils: the results of layers, by the layers' scopes."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from trainer.compat.contrib_names import missing_names

__all__ = [
    "append_tensor_alias",
    "collect_named_outputs",
    "convert_collection_to_dict",
    "gather_tensors_aliases",
    "get_tensor_aliases",
    "last_dimension",
]

v1 = tf.compat.v1


def append_tensor_alias(tensor: Any, alias: str) -> Any:
    """The tensor, with one more name."""
    tensor.aliases = [*getattr(tensor, "aliases", ()), alias.rstrip("/")]
    return tensor


def get_tensor_aliases(tensor: Any) -> list[str]:
    """The names that a tensor was given; else that of its op."""
    return list(getattr(tensor, "aliases", None) or [tensor.op.name])


def gather_tensors_aliases(tensors: Iterable[Any]) -> list[str]:
    """The names of all of them."""
    return [alias for each in tensors for alias in get_tensor_aliases(each)]


def collect_named_outputs(collections: Any, alias: str, outputs: Any) -> Any:
    """The tensor, put into collections under a name."""
    if collections:
        append_tensor_alias(outputs, alias)
        v1.add_to_collections(collections, outputs)
    return outputs


def convert_collection_to_dict(collection: str, clear_collection: bool = False) -> dict[str, Any]:
    """Name → tensor of what a collection holds, such as a layer's outputs_collections."""
    found = {
        alias: each for each in v1.get_collection(collection) for alias in get_tensor_aliases(each)
    }
    if clear_collection:
        v1.get_default_graph().clear_collection(collection)
    return found


def last_dimension(shape: Any, min_rank: int = 1) -> int:
    """The size of the last dimension."""
    found: int = tf.TensorShape(shape).with_rank_at_least(min_rank)[-1]
    return found


__getattr__ = missing_names.getattr_for("tf.contrib.slim.utils", __all__)
