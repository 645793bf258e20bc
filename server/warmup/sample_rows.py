"""Takes sample inputs of a signature from warm-up requests, or generates sample inputs."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from server.servables.servable import Array, Model
from tpuserve import samples
from tpuserve.samples import warm_up_inputs
from tpuserve.saved_model.signature import Signature

_ROWS = 3
_FILE = "saved_model.pb"
# The largest size of a saved_model.pb that is read, in bytes. The file is read for a signature with
# string inputs, to find out which strings the graph can parse.
_MAX_GRAPH_BYTES = 64 << 20


def sample_rows(model: Model, directory: Path, signature_name: str) -> Mapping[str, Array]:
    """Return valid inputs of a signature, as a batch of rows that differ from each other.

    A row is one example of a batch.
    """
    signature = model.signatures[signature_name]
    rows = _warm_up_rows(directory, signature_name, signature)
    if rows is not None:
        return rows
    graph = find_meta_graph(model, directory, signature_name)
    return samples.generate_inputs(graph, signature_name, _ROWS)


def find_meta_graph(model: Model, directory: Path, signature_name: str) -> Any:
    """Return a MetaGraphDef from which inputs of a signature can be generated.

    The MetaGraphDef has the signature.
    """
    signature = model.signatures[signature_name]
    meta_graph = meta_graph_pb2.MetaGraphDef()
    if any(spec.dtype == "string" for spec in signature.inputs.values()):
        meta_graph = _read_meta_graph(directory, signature_name)
    meta_graph.signature_def[signature_name].CopyFrom(model.signature_defs[signature_name])
    return meta_graph


def _warm_up_rows(directory: Path, name: str, signature: Signature) -> Mapping[str, Array] | None:
    """Return different rows of the warm-up requests for a signature, joined to a batch."""
    rows: list[dict[str, Array]] = []
    requests = warm_up_inputs.read_warm_up_inputs(directory, {name: signature}, []).get(name, [])
    for row in itertools.chain.from_iterable(map(_split_rows, requests)):
        if not rows or _is_new(row, rows):
            rows.append(row)
        if len(rows) == _ROWS:
            break
    if len(rows) < 2:
        return None
    return {alias: np.concatenate([row[alias] for row in rows]) for alias in signature.inputs}


def _split_rows(request: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield at most `_ROWS` rows of a request, each as alias → array of shape [1, ...]."""
    for index in range(min(_ROWS, *map(len, request.values()))):
        yield {alias: array[index : index + 1] for alias, array in request.items()}


def _is_new(row: Mapping[str, Array], rows: list[dict[str, Array]]) -> bool:
    has_same_shapes = all(row[alias].shape == array.shape for alias, array in rows[0].items())
    return has_same_shapes and not any(
        all(np.array_equal(row[alias], array) for alias, array in other.items()) for other in rows
    )


def _read_meta_graph(directory: Path, signature_name: str) -> Any:
    """Return the first metagraph in a saved_model.pb that has the given signature."""
    path = directory / _FILE
    if path.is_file() and path.stat().st_size <= _MAX_GRAPH_BYTES:
        saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
        for meta_graph in saved_model.meta_graphs:
            if signature_name in meta_graph.signature_def:
                return meta_graph
    return meta_graph_pb2.MetaGraphDef()
