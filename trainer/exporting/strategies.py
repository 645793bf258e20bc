"""Who places a model on the TPU in an export: the three ways to build a metagraph's spec."""

import logging
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, TypeAlias

import tensorflow as tf

from tpuserve.errors import ExportError
from tpuserve.export import export_outputs, on_tpu
from tpuserve.export.tpu.tpu_parts import check_no_strings_on_tpu, has_tpu_part
from trainer.model.model_program import ModelProgram
from trainer.model.spec import EstimatorSpec, TPUEstimatorSpec

logger = logging.getLogger("tensorflow.trainer")

# Takes a program, features, labels and a mode; builds in the default graph.
SpecBuilder: TypeAlias = Callable[[ModelProgram, Any, Any, str], EstimatorSpec]

# What tensorflow.python.tpu says of a tpu.rewrite within another, in two places.
_NESTED = "cannot be nested"


class ExportSavedModelApiVersion(IntEnum):
    """Who places the model on the TPU in an export: the export, whole (V1), or model_fn (V2)."""

    V1 = 1
    V2 = 2


def build_cpu_spec(program: ModelProgram, features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """The spec off the TPU.

    Raises:
      ExportError: model_fn places something on the TPU all the same.
    """
    spec = program.call_model_fn(features, labels, mode, is_export=True).as_estimator_spec()
    if has_tpu_part(tf.compat.v1.get_default_graph()):
        raise ExportError(
            "model_fn places a part on the TPU in the metagraph that is to run without one. Do so "
            "only where params['use_tpu'] is True, which it is in the other metagraph of an "
            "export of version V2, or pass export_to_cpu=False to TPUEstimator."
        )
    return spec


def build_v1_tpu_spec(
    program: ModelProgram, features: Any, labels: Any, mode: str
) -> EstimatorSpec:
    """The spec with its predictions and export outputs as results of one TPU call.

    Raises:
      ExportError: model_fn places something on the TPU itself, has strings there, or has an export
        output that has no form on a TPU.
    """
    built: list[Any] = []

    def computation(on_tpu_features: Any) -> dict[str, Any]:
        spec = program.call_model_fn(on_tpu_features, labels, mode, is_export=True)
        built.append(spec)
        return export_outputs.extract_tensors(spec)

    try:
        tensors = on_tpu(computation, features)
    except (NotImplementedError, ValueError) as error:
        if _NESTED not in str(error):
            raise
        raise ExportError(
            "model_fn calls tpu.rewrite, and an export of version V1 has the whole model in one "
            "already. Pass export_saved_model_api_version=ExportSavedModelApiVersion.V2 to "
            "TPUEstimator, and call it where params['use_tpu'] is True."
        ) from error
    check_no_strings_on_tpu(tf.compat.v1.get_default_graph(), "model_fn")
    (spec,) = built
    scaffold_fn = spec.scaffold_fn if isinstance(spec, TPUEstimatorSpec) else None
    return EstimatorSpec(
        mode=spec.mode,
        predictions=tensors["predictions"],
        export_outputs=export_outputs.rebuild_export_outputs(spec, tensors),
        scaffold=scaffold_fn() if scaffold_fn is not None else None,
    )


def build_v2_tpu_spec(
    program: ModelProgram, features: Any, labels: Any, mode: str
) -> EstimatorSpec:
    """The spec of a model_fn that finds params["use_tpu"] to be True and does the rest.

    Raises:
      ExportError: it puts strings on the TPU.
    """
    spec = program.call_model_fn(features, labels, mode, is_export=True, for_tpu=True)
    if not has_tpu_part(tf.compat.v1.get_default_graph()):
        logger.warning(
            "the metagraph tagged {serve, tpu} runs on the host alone: model_fn placed nothing on "
            "the TPU where params['use_tpu'] is True; call trainer.inference_on_tpu there, or "
            "export by version V1"
        )
    check_no_strings_on_tpu(tf.compat.v1.get_default_graph(), "model_fn")
    return spec.as_estimator_spec()


TPU_SPEC_BUILDERS: Mapping[ExportSavedModelApiVersion, SpecBuilder] = {
    ExportSavedModelApiVersion.V1: build_v1_tpu_spec,
    ExportSavedModelApiVersion.V2: build_v2_tpu_spec,
}
