"""The one door to `tpuserve.export`: the two metagraphs of a model_fn."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model import model_utils
from tensorflow.python.saved_model.model_utils.export_output import (
    ClassificationOutput,
    PredictOutput,
    RegressionOutput,
)

from tpuserve import tags
from tpuserve.errors import ExportError, InvalidSetting
from tpuserve.export import MetagraphSpec, SavedModelWriter, on_tpu
from trainer import checkpoints, graph
from trainer.program import Program
from trainer.receivers import ServingInputReceiver
from trainer.spec import ModeKeys, TPUEstimatorSpec


def export_saved_model(
    program: Program,
    export_dir_base: str,
    serving_input_receiver_fn: Callable[[], ServingInputReceiver],
    *,
    to_cpu: bool,
    to_tpu: bool,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    checkpoint_path: str | None = None,
) -> str:
    """Writes a checkpoint as a SavedModel; returns its version directory.

    Args:
      program: what to export.
      export_dir_base: where version directories live.
      serving_input_receiver_fn: builds the placeholders and the features.
      to_cpu: write the metagraph {serve}, the model as it is.
      to_tpu: write the metagraph {serve, tpu}, the whole model on the TPU.
      assets_extra: path below assets.extra/ → file to copy there.
      as_text: write saved_model.pbtxt in place of saved_model.pb.
      checkpoint_path: which checkpoint; None for the newest.

    Raises:
      CheckpointNotFound: there is nothing to export.
      ExportError: neither metagraph is wanted, or an export output has no form on a TPU.
    """
    if not callable(serving_input_receiver_fn):
        raise InvalidSetting(
            f"serving_input_receiver_fn is {serving_input_receiver_fn!r}. Give a function that "
            f"returns a trainer.ServingInputReceiver."
        )
    if not (to_cpu or to_tpu):
        raise ExportError(
            "export_to_cpu and export_to_tpu are both False, so there is nothing to write. Set "
            "one of them."
        )
    checkpoint = checkpoints.find(program.model_dir, checkpoint_path)
    with SavedModelWriter(export_dir_base, assets_extra=assets_extra, as_text=as_text) as writer:
        if to_cpu:
            writer.add(
                _metagraph(program, serving_input_receiver_fn, checkpoint, tags.SERVE, _as_it_is)
            )
        if to_tpu:
            writer.add(
                _metagraph(
                    program, serving_input_receiver_fn, checkpoint, tags.SERVE_TPU, _whole_on_tpu
                )
            )
    return writer.directory


def _metagraph(
    program: Program,
    serving_input_receiver_fn: Callable[[], ServingInputReceiver],
    checkpoint: str,
    tag_set: tags.TagSet,
    build: Callable[[Program, Any], TPUEstimatorSpec],
) -> MetagraphSpec:
    with graph.fresh(program.config):
        receiver = serving_input_receiver_fn()
        if not isinstance(receiver, ServingInputReceiver):
            raise InvalidSetting(
                f"serving_input_receiver_fn returned {type(receiver).__name__}. Return a "
                f"trainer.ServingInputReceiver."
            )
        spec = build(program, _apart_from_placeholders(receiver.features))
        checkpoints.check_shapes(checkpoint)
        outputs = model_utils.get_export_outputs(spec.export_outputs, spec.predictions)
        signatures = model_utils.build_all_signature_defs(
            receiver.receiver_tensors, outputs, receiver.receiver_tensors_alternatives
        )
        scaffold = checkpoints.with_saver(spec.scaffold(), program.config)
        scaffold.saver.build()
        return MetagraphSpec(
            tags=tag_set,
            graph=tf.compat.v1.get_default_graph(),
            signatures=signatures,
            restore=lambda session: scaffold.saver.restore(session, checkpoint),
            saver=scaffold.saver,
            init_op=scaffold.local_init_op or scaffold.default_local_init_op(),
        )


def _apart_from_placeholders(features: Any) -> Any:
    # A session refuses to fetch what it is fed, which a model that hands a feature on asks for.
    return tf.nest.map_structure(
        lambda each: tf.identity(each) if tf.is_tensor(each) else each,
        features,
        expand_composites=True,
    )


def _as_it_is(program: Program, features: Any) -> TPUEstimatorSpec:
    return program.call_model_fn(features, None, ModeKeys.PREDICT, is_export=True)


def _whole_on_tpu(program: Program, features: Any) -> TPUEstimatorSpec:
    """The model's spec with its predictions and export outputs as results of a TPU call."""
    built: list[TPUEstimatorSpec] = []

    def computation(on_tpu_features: Any) -> Any:
        spec = program.call_model_fn(on_tpu_features, None, ModeKeys.PREDICT, is_export=True)
        built.append(spec)
        outputs = {name: _tensors(name, each) for name, each in _export_outputs(spec).items()}
        return {"predictions": spec.predictions, "export_outputs": outputs}

    results = on_tpu(computation, features)
    (spec,) = built
    outputs = {
        name: type(each)(**results["export_outputs"][name])
        for name, each in _export_outputs(spec).items()
    }
    return TPUEstimatorSpec(
        mode=spec.mode,
        predictions=results["predictions"],
        export_outputs=outputs or None,
        scaffold_fn=spec.scaffold_fn,
    )


def _export_outputs(spec: TPUEstimatorSpec) -> Mapping[str, Any]:
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
