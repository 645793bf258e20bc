"""Converts the description of a SavedModel to JSON types, for `tpuserve inspect --json`."""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tpuserve import tags as tag_sets
from tpuserve.saved_model.metagraph import Metagraph, SavedModel
from tpuserve.saved_model.signature import Signature, TensorSpec
from tpuserve.saved_model.variables import DeclaredVariable
from tpuserve.tags import TagSet


def convert_command(directory: Path, available: Collection[TagSet]) -> str:
    """Return the shell command that adds a {serve, tpu} metagraph to a SavedModel."""
    command = f"tpuserve convert {shlex.quote(str(directory))} {shlex.quote(str(_out(directory)))}"
    if tag_sets.SERVE in available or not available:
        return command
    tags = min(available, key=sorted)
    return f"{command} --tags {shlex.quote(','.join(sorted(tags)))}"


def _out(directory: Path) -> Path:
    """Return a directory for the converted SavedModel: models/half-tpu/1 for models/half/1."""
    if directory.name.isdecimal() and directory.parent.name:
        base = directory.parent
        return base.with_name(f"{base.name}-tpu") / directory.name
    return directory.with_name(f"{directory.name or 'model'}-tpu")


def saved_model_to_dict(model: SavedModel) -> dict[str, Any]:
    """Return the description of a SavedModel as a dict that can be written as JSON."""
    return {
        "directory": str(model.directory),
        "graph_bytes": model.graph_bytes,
        "variables_bytes": model.variables_bytes,
        "metagraphs": [_metagraph(metagraph) for metagraph in model.metagraphs],
        "warm_up": [
            {
                "kind": record.kind,
                "signature_name": record.signature_name,
                "inputs": _specs(record.inputs),
            }
            for record in model.warm_up
        ],
        "extra_files": list(model.extra_files),
        "problems": list(model.problems),
    }


def sort_by_count(counts: Mapping[str, int]) -> dict[str, int]:
    """Sort a dict of name → count by count, largest first, and then by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _metagraph(metagraph: Metagraph) -> dict[str, Any]:
    return {
        "tags": sorted(metagraph.tags),
        "tensorflow_version": metagraph.tensorflow_version,
        "signatures": {
            name: _signature(signature) for name, signature in metagraph.signatures.items()
        },
        "has_tpu_computation": metagraph.has_tpu_computation,
        "host_ops": sort_by_count(metagraph.host_ops),
        "tpu_computations": [
            {
                "name": computation.name,
                "batched_by": computation.batched_by,
                "tpu_ops": sort_by_count(computation.tpu_ops),
                "host_ops": sort_by_count(computation.host_ops),
            }
            for computation in metagraph.computations
        ],
        "batch_functions": [
            {**asdict(batch), "allowed_batch_sizes": list(batch.allowed_batch_sizes)}
            for batch in metagraph.batch_functions
        ],
        "variables": [_variable(variable) for variable in metagraph.variables],
        "stablehlo_modules": [
            {**asdict(module), "platforms": list(module.platforms)}
            for module in metagraph.stablehlo_modules
        ],
        "assets": list(metagraph.assets),
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


def _variable(variable: DeclaredVariable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "dtype": variable.dtype,
        "shape": _shape(variable.shape),
        "bytes": variable.bytes,
    }


def _shape(shape: tuple[int | None, ...] | None) -> list[int | None] | None:
    return None if shape is None else list(shape)
