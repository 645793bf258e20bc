"""Makes a valid request for a signature, for the OpenAPI document and the console."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from server.dataplane.results import ExampleFeature, SampleInput, SampleRequest
from server.servables.servable import Array, Model
from tpuserve import samples
from tpuserve.errors import TpuserveError
from tpuserve.samples import parsing, warm_up_inputs
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


# The largest number of elements of an input in a sample request. A larger value is omitted, because
# nobody would read or edit it. The values of tf.train.Examples count too.
_MAX_ELEMENTS = 4096


def make_sample_request(
    model: Model, directory: Path, signature_name: str, may_show_warm_up: bool = False
) -> SampleRequest:
    """Return a valid request for a signature.

    The inputs are those of the first warm-up request for the signature, if `may_show_warm_up` is
    True and there is such a request.

    Args:
      may_show_warm_up: whether the inputs may come from a warm-up request. Warm-up requests may be
        private, because some are recorded from users.
    """
    signature = model.signatures[signature_name]
    graph = find_meta_graph(model, directory, signature_name)
    rows = _count_rows(signature)
    arrays = None
    if may_show_warm_up:
        arrays = _first_warm_up_request(directory, signature_name, signature, rows)
    if arrays is None:
        arrays = samples.generate_inputs(graph, signature_name, rows)
    inputs = {}
    for alias, array in arrays.items():
        use = parsing.StringInputUse()
        if array.dtype == object:
            use = parsing.infer_string_input(graph.graph_def, signature.inputs[alias].name)
        is_shown = array.size * use.values_per_string <= _MAX_ELEMENTS
        inputs[alias] = SampleInput(
            array.shape,
            array if is_shown else None,
            _read_features(array, use, is_shown),
            use.is_picture,
        )
    return SampleRequest(inputs)


def _count_rows(signature: Signature) -> int:
    """Return the size of the first dimension of the inputs; 1 if an input allows any size."""
    shapes = [spec.shape for spec in signature.inputs.values()]
    sizes = [None if shape is None else shape[0] for shape in shapes if shape != ()]
    known = [size for size in sizes if size is not None]
    return known[0] if known and len(known) == len(sizes) else 1


def _first_warm_up_request(
    directory: Path, name: str, signature: Signature, rows: int
) -> Mapping[str, Array] | None:
    try:
        recorded = warm_up_inputs.read_warm_up_inputs(directory, {name: signature}, [])
    except TpuserveError:
        return None
    requests = recorded.get(name)
    if not requests:
        return None
    is_batch = all(
        array.ndim and signature.inputs[alias].shape is not None
        for alias, array in requests[0].items()
    )
    if rows != 1 or not is_batch:
        return requests[0]
    return {alias: array[:1] for alias, array in requests[0].items()}


def _read_features(
    array: Array, use: parsing.StringInputUse, is_shown: bool
) -> dict[str, ExampleFeature]:
    """Return the features of the first tf.train.Example in an input."""
    if not use.features or not array.size:
        return {}
    features = {
        feature.key: ExampleFeature(_kind(feature.dtype), feature.size) for feature in use.features
    }
    if not is_shown:
        return features
    example = tf.train.Example.FromString(array.reshape(-1)[0])
    for key, feature in features.items():
        message = example.features.feature[key]
        kind = message.WhichOneof("kind")
        values = getattr(message, kind).value if kind else ()
        features[key] = replace(feature, values=tuple(_to_plain(value) for value in values))
    return features


def _kind(dtype: int) -> str:
    kinds = {tf.string: "bytes", tf.int64: "int64"}
    return kinds.get(tf.as_dtype(dtype), "float")


def _to_plain(value: Any) -> Any:
    # Round a float32 to the shortest decimal number that stands for it, so that JSON text of 0.1 is
    # not 0.10000000149011612.
    return float(str(np.float32(value))) if isinstance(value, float) else value
