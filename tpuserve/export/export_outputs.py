"""The export outputs of a spec, taken apart into tensors and put together again."""

from collections.abc import Mapping
from typing import Any

from tpuserve.errors import ExportError
from tpuserve.tensorflow_internals import (
    ClassificationOutput,
    PredictOutput,
    RegressionOutput,
)


def extract_tensors(spec: Any) -> dict[str, Any]:
    """What a spec predicts and exports, as a nest of tensors; see `rebuild_export_outputs`.

    Raises:
      ExportError: an export output is of a kind that has no form on a TPU, or the spec has a
        scaffold whose ops would be on the TPU.
    """
    _check_scaffold(getattr(spec, "scaffold", None))
    outputs = {name: _tensors(name, each) for name, each in _outputs(spec).items()}
    return {"predictions": spec.predictions, "export_outputs": outputs}


def rebuild_export_outputs(spec: Any, tensors: Mapping[str, Any]) -> dict[str, Any] | None:
    """The export outputs of a spec with other tensors; None for none."""
    outputs = {
        name: type(each)(**tensors["export_outputs"][name]) for name, each in _outputs(spec).items()
    }
    return outputs or None


def _outputs(spec: Any) -> Mapping[str, Any]:
    return spec.export_outputs or {}


def _tensors(name: str, output: Any) -> dict[str, Any]:
    """The tensors of an export output by the names its constructor takes them under."""
    if isinstance(output, PredictOutput):
        return {"outputs": dict(output.outputs)}
    if isinstance(output, ClassificationOutput):
        given = {"scores": output.scores, "classes": output.classes}
        return {each: tensor for each, tensor in given.items() if tensor is not None}
    if isinstance(output, RegressionOutput):
        return {"value": output.value}
    raise ExportError(
        f"export output {name!r} is a {type(output).__name__}, which has no form on a TPU. Give "
        f"a PredictOutput, ClassificationOutput or RegressionOutput."
    )


def _check_scaffold(scaffold: Any) -> None:
    found = [
        each for each in ("saver", "init_op", "local_init_op") if getattr(scaffold, each, None)
    ]
    if found:
        raise ExportError(
            f"model_fn returned an EstimatorSpec whose scaffold has a {found[0]} of its own, made "
            f"within the TPU computation, where it cannot run. Return a spec with a scaffold_fn, "
            f"which is called outside of it."
        )
