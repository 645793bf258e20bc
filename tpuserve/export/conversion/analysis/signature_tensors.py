"""Finds and renames the tensors of a SignatureDef; a sparse or composite input has several."""

from collections.abc import Callable, Iterator
from typing import Any

from tpuserve.lowering.ir.graph_ir import Value


def find_tensors(info: Any) -> Iterator[str]:
    """Yield the names of the tensors of a TensorInfo."""
    names: list[str] = []

    def record(name: str) -> str:
        names.append(name)
        return name

    copy = type(info)()
    copy.CopyFrom(info)
    rename_tensors(copy, record)
    yield from names


def rename_tensors(info: Any, rename: Callable[[str], str]) -> None:
    """Replace the names of the tensors of a TensorInfo, in place."""
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
    """Return the value of a tensor's name: "x:1" → Value("x", 1)."""
    name, _, index = tensor.partition(":")
    return Value(name, int(index or 0))


def format_value(value: Value) -> str:
    """Return the name of a value's tensor."""
    return f"{value.producer}:{value.output_index}"
