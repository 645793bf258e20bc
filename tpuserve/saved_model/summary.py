"""A SavedModel's description as data for programs: what `tpuserve inspect --json` prints."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tpuserve.saved_model.metagraph import Metagraph, SavedModel
from tpuserve.saved_model.signature import Signature, TensorSpec
from tpuserve.saved_model.variables import DeclaredVariable


def saved_model_to_dict(model: SavedModel) -> dict[str, Any]:
    """The description as plain dicts, lists, strings, numbers and None."""
    return {
        "directory": str(model.directory),
        "graph_bytes": model.graph_bytes,
        "variables_bytes": model.variables_bytes,
        "metagraphs": [_metagraph(each) for each in model.metagraphs],
        "warm_up": [
            {
                "kind": each.kind,
                "signature_name": each.signature_name,
                "inputs": _specs(each.inputs),
            }
            for each in model.warm_up
        ],
        "extra_files": list(model.extra_files),
        "problems": list(model.problems),
    }


def sort_by_count(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts, the largest first; equal ones by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _metagraph(each: Metagraph) -> dict[str, Any]:
    return {
        "tags": sorted(each.tags),
        "tensorflow_version": each.tensorflow_version,
        "signatures": {name: _signature(found) for name, found in each.signatures.items()},
        "host_ops": sort_by_count(each.host_ops),
        "tpu_computations": [
            {
                "name": computation.name,
                "batched_by": computation.batched_by,
                "tpu_ops": sort_by_count(computation.tpu_ops),
                "host_ops": sort_by_count(computation.host_ops),
            }
            for computation in each.computations
        ],
        "batch_functions": [
            {**asdict(batch), "allowed_batch_sizes": list(batch.allowed_batch_sizes)}
            for batch in each.batch_functions
        ],
        "variables": [_variable(variable) for variable in each.variables],
        "assets": list(each.assets),
    }


def _signature(signature: Signature) -> dict[str, Any]:
    return {
        "method_name": signature.method_name,
        "inputs": _specs(signature.inputs),
        "outputs": _specs(signature.outputs),
    }


def _specs(specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    return {
        alias: {"name": spec.name, "dtype": spec.dtype, "shape": _shape(spec.shape)}
        for alias, spec in specs.items()
    }


def _variable(each: DeclaredVariable) -> dict[str, Any]:
    return {
        "name": each.name,
        "dtype": each.dtype,
        "shape": _shape(each.shape),
        "bytes": each.bytes,
    }


def _shape(shape: tuple[int | None, ...] | None) -> list[int | None] | None:
    return None if shape is None else list(shape)
