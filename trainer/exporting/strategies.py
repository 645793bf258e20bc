"""Builds the EstimatorSpec of an exported metagraph, for the CPU or for the TPU."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import tensorflow as tf

from tpuserve.errors import ExportError
from tpuserve.export import export_outputs, on_tpu
from tpuserve.export.tpu.tpu_parts import check_no_strings_on_tpu, has_tpu_part
from trainer.model.model_program import ModelProgram
from trainer.model.spec import EstimatorSpec, TPUEstimatorSpec

logger = logging.getLogger("tensorflow.trainer")

# The type of the functions that build an EstimatorSpec, such as `build_cpu_spec`. The arguments are
# the ModelProgram, the features, the labels and the mode. The model is built in the default graph.
SpecBuilder: TypeAlias = Callable[[ModelProgram, Any, Any, str], EstimatorSpec]

# A part of the text of TensorFlow's two errors about a tpu.rewrite within another tpu.rewrite.
# `build_v1_tpu_spec` uses it to recognize these errors.
_NESTED_REWRITE = "cannot be nested"


class ExportSavedModelApiVersion(IntEnum):
    """Decides which part of an exported model runs on the TPU in the TPU metagraph.

    Attributes:
      V1: the whole model, which the export wraps in one TPUPartitionedCall.
      V2: the parts that model_fn places on the TPU when params["use_tpu"] is True.
    """

    V1 = 1
    V2 = 2


@dataclass(frozen=True)
class ExportTargets:
    """The metagraphs that an export writes."""

    to_cpu: bool = True
    to_tpu: bool = False
    version: ExportSavedModelApiVersion = ExportSavedModelApiVersion.V1


def build_cpu_spec(program: ModelProgram, features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """Build the EstimatorSpec of a metagraph that runs on the CPU.

    Args:
      labels: a nested structure of tensors, or None.
    """
    spec = program.call_model_fn(features, labels, mode, is_export=True).as_estimator_spec()
    if has_tpu_part(tf.compat.v1.get_default_graph()):
        raise ExportError(
            "model_fn places a part on the TPU in the metagraph that must run without a TPU. Place "
            "parts on the TPU only if params['use_tpu'] is True, as in the TPU metagraph of an "
            "export of version V2, or pass export_to_cpu=False to TPUEstimator."
        )
    return spec


def build_v1_tpu_spec(
    program: ModelProgram, features: Any, labels: Any, mode: str
) -> EstimatorSpec:
    """Build the EstimatorSpec of a TPU metagraph for ExportSavedModelApiVersion.V1.

    One TPUPartitionedCall computes the predictions and export outputs.

    Args:
      labels: a nested structure of tensors, or None.

    Raises:
      ExportError: model_fn already places a part of the model on the TPU, uses strings on the TPU,
        or returns an export output that cannot come from a TPU.
    """
    specs: list[Any] = []

    def computation(on_tpu_features: Any) -> dict[str, Any]:
        spec = program.call_model_fn(on_tpu_features, labels, mode, is_export=True)
        specs.append(spec)
        return export_outputs.extract_tensors(spec)

    try:
        tensors = on_tpu(computation, features)
    except (NotImplementedError, ValueError) as error:
        if _NESTED_REWRITE not in str(error):
            raise
        raise ExportError(
            "model_fn calls tpu.rewrite, and an export of version V1 rewrites the whole model "
            "already. Pass export_saved_model_api_version=ExportSavedModelApiVersion.V2 to "
            "TPUEstimator, and call tpu.rewrite only if params['use_tpu'] is True."
        ) from error
    check_no_strings_on_tpu(tf.compat.v1.get_default_graph(), "model_fn")
    (spec,) = specs
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
    """Build the EstimatorSpec of a TPU metagraph for ExportSavedModelApiVersion.V2.

    The model_fn is called with params["use_tpu"] True, and places parts of the model on the TPU.

    Args:
      labels: a nested structure of tensors, or None.
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
