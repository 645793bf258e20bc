"""Makes a valid request for a signature, for the OpenAPI document and the console."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from server.dataplane.results import ExampleFeature, SampleInput, SampleRequest
from server.servables.servable import Array, Model
from server.warmup import sample_rows
from tpuserve import samples
from tpuserve.errors import TpuserveError
from tpuserve.samples import parsing, warm_up_inputs
from tpuserve.saved_model.signature import Signature

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
    graph = sample_rows.find_meta_graph(model, directory, signature_name)
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
