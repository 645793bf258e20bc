"""tf.contrib.slim.utils: aliases of tensors, and output collections as dicts.

An alias is a further name of a tensor, such as the name of the layer that returns the tensor.
"""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from trainer.compat import contrib_missing_names

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
    """Add an alias to a tensor and return the tensor."""
    tensor.aliases = [*getattr(tensor, "aliases", ()), alias.rstrip("/")]
    return tensor


def get_tensor_aliases(tensor: Any) -> list[str]:
    """Return a tensor's aliases, or the name of its op if it has no alias."""
    return list(getattr(tensor, "aliases", None) or [tensor.op.name])


def gather_tensors_aliases(tensors: Iterable[Any]) -> list[str]:
    """Return the aliases of all tensors in a list; for a tensor without alias, its op's name."""
    return [alias for tensor in tensors for alias in get_tensor_aliases(tensor)]


def collect_named_outputs(collections: Any, alias: str, outputs: Any) -> Any:
    """Add a tensor to collections under an alias, and return the tensor.

    Args:
      collections: the key of a collection, or a list of keys; None to add the tensor to none.
    """
    if collections:
        append_tensor_alias(outputs, alias)
        v1.add_to_collections(collections, outputs)
    return outputs


def convert_collection_to_dict(collection: str, clear_collection: bool = False) -> dict[str, Any]:
    """Return a dict of alias → tensor for a collection, such as a layer's outputs_collections."""
    tensors = {
        alias: tensor
        for tensor in v1.get_collection(collection)
        for alias in get_tensor_aliases(tensor)
    }
    if clear_collection:
        v1.get_default_graph().clear_collection(collection)
    return tensors


def last_dimension(shape: Any, min_rank: int = 1) -> int:
    """Return the size of a shape's last dimension."""
    size: int = tf.TensorShape(shape).with_rank_at_least(min_rank)[-1]
    return size


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.slim.utils", __all__)
