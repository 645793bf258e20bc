"""Finds and replaces the tensor names in the inputs and outputs of a SignatureDef."""

from collections.abc import Callable, Iterator
from typing import Any

from tpuserve.lowering.ir.graph_ir import Value


def find_tensors(info: Any) -> Iterator[str]:
    """Yield the tensor names in a TensorInfo; a sparse or composite tensor has several."""
    names: list[str] = []

    def record(name: str) -> str:
        names.append(name)
        return name

    copy = type(info)()
    copy.CopyFrom(info)
    rename_tensors(copy, record)
    yield from names


def rename_tensors(info: Any, rename: Callable[[str], str]) -> None:
    """Replace each tensor name in a TensorInfo by the result of `rename` for it, in place."""
    kind = info.WhichOneof("encoding")
    if kind == "coo_sparse":
        for field in ("values", "indices", "dense_shape"):
            name = f"{field}_tensor_name"
            setattr(info.coo_sparse, name, rename(getattr(info.coo_sparse, name)))
    elif kind == "composite_tensor":
        for component in info.composite_tensor.components:
            rename_tensors(component, rename)
    else:
        info.name = rename(info.name)


def parse_value(tensor: str) -> Value:
    """Convert a tensor name to a node output: "x:1" becomes Value("x", 1)."""
    name, _, index = tensor.partition(":")
    return Value(name, int(index or 0))


def format_value(value: Value) -> str:
    """Convert a node output to its tensor name: Value("x", 1) becomes "x:1"."""
    return f"{value.producer}:{value.output_index}"
