"""A SavedModel's description, as data for programs and as tables for people."""

import math
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tpuserve import tags as tag_sets
from tpuserve.metagraph import Metagraph, SavedModel
from tpuserve.signature import Signature, TensorSpec

_OPS_SHOWN = 6


def as_data(model: SavedModel) -> dict[str, Any]:
    """The description as plain dicts, lists, strings and numbers."""
    return {
        "directory": str(model.directory),
        "graph_bytes": model.graph_bytes,
        "variables_bytes": model.variables_bytes,
        "metagraphs": [_metagraph_data(each) for each in model.metagraphs],
    }


def print_tables(model: SavedModel, console: Console | None = None) -> None:
    """Prints the description for people, in colour where the console has any."""
    console = console or Console()
    size = f"graph {_bytes(model.graph_bytes)}, variables {_bytes(model.variables_bytes)}"
    console.print(Text(f"{model.directory}: {size}", style="bold"), soft_wrap=True)
    for each in model.metagraphs:
        console.print(_panel(each))


def _metagraph_data(each: Metagraph) -> dict[str, Any]:
    return {
        "tags": sorted(each.tags),
        "tensorflow_version": each.tensorflow_version,
        "signatures": {name: _signature_data(found) for name, found in each.signatures.items()},
        "host_ops": _by_count(each.host_ops),
        "tpu_computations": [
            {
                "name": computation.name,
                "tpu_ops": _by_count(computation.tpu_ops),
                "host_ops": _by_count(computation.host_ops),
            }
            for computation in each.computations
        ],
        "assets": list(each.assets),
    }


def _signature_data(signature: Signature) -> dict[str, Any]:
    return {
        "method_name": signature.method_name,
        "inputs": {name: _spec_data(spec) for name, spec in signature.inputs.items()},
        "outputs": {name: _spec_data(spec) for name, spec in signature.outputs.items()},
    }


def _spec_data(spec: TensorSpec) -> dict[str, Any]:
    shape = None if spec.shape is None else list(spec.shape)
    return {"name": spec.name, "dtype": spec.dtype, "shape": shape}


def _panel(each: Metagraph) -> Panel:
    parts: list[Any] = [_signature_table(each)]
    for computation in each.computations:
        parts.append(Text.assemble(("on the TPU   ", "bold"), _ops(computation.tpu_ops)))
        if computation.host_ops:
            parts.append(Text.assemble(("  its host   ", "bold"), _ops(computation.host_ops)))
    parts.append(Text.assemble(("on the host  ", "bold"), _ops(each.host_ops)))
    if each.assets:
        parts.append(Text.assemble(("assets       ", "bold"), ", ".join(each.assets)))
    title = f"metagraph {tag_sets.show(each.tags)}, TensorFlow {each.tensorflow_version}"
    return Panel(Group(*parts), title=title, title_align="left", expand=False)


def _signature_table(each: Metagraph) -> Table:
    table = Table("signature", "", "name", "type and shape", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, signature in each.signatures.items():
        tensors = [("in", *item) for item in signature.inputs.items()]
        tensors += [("out", *item) for item in signature.outputs.items()]
        for row, (direction, alias, spec) in enumerate(tensors):
            # A Text is printed as it is; a str would have "[?, 784]" taken for markup.
            table.add_row(name if row == 0 else "", direction, Text(alias), Text(str(spec)))
    return table


def _ops(counts: Mapping[str, int]) -> str:
    ordered = list(_by_count(counts).items())
    text = ", ".join(f"{op} {count}" for op, count in ordered[:_OPS_SHOWN])
    more = len(ordered) - _OPS_SHOWN
    total = f"{sum(counts.values())} ops: {text}"
    return f"{total} and {more} other types" if more > 0 else total


def _by_count(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _bytes(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    power = min(int(math.log10(count)) // 3, 4)
    return f"{count / 1000**power:.1f} {['B', 'kB', 'MB', 'GB', 'TB'][power]}"
