"""Extracts the tensors of an EstimatorSpec's export outputs, and rebuilds the export outputs.

A TPU computation can return only tensors.
"""

from collections.abc import Mapping
from typing import Any

from tpuserve.errors import ExportError
from tpuserve.tensorflow_internals import (
    ClassificationOutput,
    PredictOutput,
    RegressionOutput,
)


def extract_tensors(spec: Any) -> dict[str, Any]:
    """Return the predictions and export outputs of an EstimatorSpec as a nest of tensors.

    Raises:
      ExportError: An export output is not a PredictOutput, ClassificationOutput or
        RegressionOutput; or the spec's scaffold has a saver or init op, which would be in the TPU
        computation.
    """
    _check_scaffold(getattr(spec, "scaffold", None))
    outputs = {
        name: _constructor_arguments(name, output)
        for name, output in _get_export_outputs(spec).items()
    }
    return {"predictions": spec.predictions, "export_outputs": outputs}


def rebuild_export_outputs(spec: Any, tensors: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return copies of a spec's export outputs, with new tensors in place of the old ones.

    Returns:
      None if the spec has no export outputs.
    """
    outputs = {
        name: type(output)(**tensors["export_outputs"][name])
        for name, output in _get_export_outputs(spec).items()
    }
    return outputs or None


def _get_export_outputs(spec: Any) -> Mapping[str, Any]:
    return spec.export_outputs or {}


def _constructor_arguments(name: str, output: Any) -> dict[str, Any]:
    """Return the tensors of an export output, by the parameter names of its constructor."""
    if isinstance(output, PredictOutput):
        return {"outputs": dict(output.outputs)}
    if isinstance(output, ClassificationOutput):
        tensors = {"scores": output.scores, "classes": output.classes}
        return {argument: tensor for argument, tensor in tensors.items() if tensor is not None}
    if isinstance(output, RegressionOutput):
        return {"value": output.value}
    raise ExportError(
        f"export output {name!r} is a {type(output).__name__}, which cannot be exported for a TPU. "
        f"Give a PredictOutput, ClassificationOutput or RegressionOutput."
    )


def _check_scaffold(scaffold: Any) -> None:
    names = [
        name for name in ("saver", "init_op", "local_init_op") if getattr(scaffold, name, None)
    ]
    if names:
        raise ExportError(
            f"model_fn returned an EstimatorSpec whose scaffold has a {names[0]} of its own. It "
            f"was created inside of the TPU computation and cannot run there. Return a spec with a "
            f"scaffold_fn, which is called outside of the computation."
        )
