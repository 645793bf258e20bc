"""The metagraphs of a model_fn, written as one SavedModel."""

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
from trainer import checkpoints, eval_metrics, graph
from trainer.program import Program
from trainer.receivers import ServingInputReceiver, SupervisedInputReceiver
from trainer.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec

# The first metagraph carries the variables of all, and a model in training has the most.
_ORDER = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


def write(
    program: Program,
    export_dir_base: str,
    input_receiver_fns: Mapping[str, Callable[[], Any]],
    *,
    to_cpu: bool = True,
    to_tpu: bool = False,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    checkpoint_path: str | None = None,
    strip_default_attrs: bool = True,
) -> str:
    """Writes a checkpoint as a SavedModel; returns its version directory.

    Args:
      program: what to export.
      export_dir_base: where version directories live.
      input_receiver_fns: mode → function that builds the placeholders and the features. PREDICT
        is tagged {serve}, TRAIN {train} and EVAL {eval}.
      to_cpu: write a metagraph of each mode, the model as it is.
      to_tpu: write the metagraph {serve, tpu} of PREDICT, the whole model on the TPU.
      assets_extra: path below assets.extra/ → file to copy there.
      as_text: write saved_model.pbtxt in place of saved_model.pb.
      checkpoint_path: which checkpoint; None for the newest.
      strip_default_attrs: leave out attributes of ops that have their default value, so that
        older TensorFlows can read the graph.

    Raises:
      CheckpointNotFound: there is nothing to export.
      ExportError: no metagraph is wanted, an export output has no form on a TPU, or the checkpoint
        lacks a variable.
      InvalidSetting: a mode is none, or a function returns another thing than a receiver.
    """
    _check_functions(input_receiver_fns)
    if not (to_cpu or to_tpu):
        raise ExportError(
            "export_to_cpu and export_to_tpu are both False, so there is nothing to write. Set "
            "one of them."
        )
    checkpoint = checkpoints.find(program.model_dir, checkpoint_path)
    with SavedModelWriter(
        export_dir_base,
        assets_extra=assets_extra,
        as_text=as_text,
        strip_default_attrs=strip_default_attrs,
    ) as writer:
        for mode in _ORDER:
            if mode not in input_receiver_fns:
                continue
            receiver_fn = input_receiver_fns[mode]
            if to_cpu:
                writer.add(_metagraph(program, receiver_fn, checkpoint, mode, is_for_tpu=False))
            if to_tpu and mode == ModeKeys.PREDICT:
                writer.add(_metagraph(program, receiver_fn, checkpoint, mode, is_for_tpu=True))
    return writer.directory


def _check_functions(input_receiver_fns: Mapping[str, Any]) -> None:
    unknown = [mode for mode in input_receiver_fns if mode not in _ORDER]
    if unknown or not input_receiver_fns:
        raise InvalidSetting(
            f"no valid modes for export found: {sorted(input_receiver_fns)}. Give input receiver "
            f"functions for modes out of {', '.join(_ORDER)}."
        )
    for mode, receiver_fn in input_receiver_fns.items():
        if not callable(receiver_fn):
            raise InvalidSetting(
                f"{_function_name(mode)} is {receiver_fn!r}. Give a function that returns a "
                f"{_receiver_name(mode)}: serving_input_receiver_fn must be defined."
            )


def _metagraph(
    program: Program,
    receiver_fn: Callable[[], Any],
    checkpoint: str,
    mode: str,
    *,
    is_for_tpu: bool,
) -> MetagraphSpec:
    with graph.fresh(program.config, has_one_replica=not is_for_tpu):
        receiver = receiver_fn()
        wanted = ServingInputReceiver if mode == ModeKeys.PREDICT else SupervisedInputReceiver
        if not isinstance(receiver, (wanted, ServingInputReceiver)):
            raise InvalidSetting(
                f"{_function_name(mode)} returned {type(receiver).__name__}. Return a "
                f"{_receiver_name(mode)}."
            )
        features = _apart_from_placeholders(receiver.features)
        labels = _apart_from_placeholders(getattr(receiver, "labels", None))
        build = _whole_on_tpu if is_for_tpu else _as_it_is
        spec = build(program, features, labels, mode)
        checkpoints.check_shapes(checkpoint)
        outputs = model_utils.export_outputs_for_mode(
            mode,
            spec.export_outputs,
            None if _is_empty(spec.predictions) else spec.predictions,
            spec.loss,
            eval_metrics.pairs(spec.eval_metric_ops or {}) or None,
        )
        signatures = model_utils.build_all_signature_defs(
            receiver.receiver_tensors,
            outputs,
            getattr(receiver, "receiver_tensors_alternatives", None),
            serving_only=mode == ModeKeys.PREDICT,
        )
        scaffold = checkpoints.with_saver(spec.scaffold, program.config)
        scaffold.saver.build()
        missing = checkpoints.missing_variables(scaffold.saver, checkpoint)
        if missing:
            raise ExportError(
                f"variables to be saved were not found in checkpoint {checkpoint}: missing "
                f"variables {', '.join(missing)}. Export with the model_fn that wrote it, or "
                f"leave them out of the saver that the spec's scaffold has."
            )
        return MetagraphSpec(
            tags=tags.SERVE_TPU if is_for_tpu else frozenset(model_utils.EXPORT_TAG_MAP[mode]),
            graph=tf.compat.v1.get_default_graph(),
            signatures=signatures,
            restore=lambda session: scaffold.saver.restore(session, checkpoint),
            saver=scaffold.saver,
            init_op=scaffold.local_init_op or scaffold.default_local_init_op(),
        )


def _is_empty(predictions: Any) -> bool:
    return isinstance(predictions, Mapping) and not predictions


def _function_name(mode: str) -> str:
    return "serving_input_receiver_fn" if mode == ModeKeys.PREDICT else f"input receiver of {mode}"


def _receiver_name(mode: str) -> str:
    if mode == ModeKeys.PREDICT:
        return "trainer.ServingInputReceiver"
    return "trainer.export.SupervisedInputReceiver"


def _apart_from_placeholders(features: Any) -> Any:
    # A session refuses to fetch what it is fed, which a model that hands a feature on asks for.
    return tf.nest.map_structure(
        lambda each: tf.identity(each) if tf.is_tensor(each) else each,
        features,
        expand_composites=True,
    )


def _as_it_is(program: Program, features: Any, labels: Any, mode: str) -> EstimatorSpec:
    return program.call_model_fn(features, labels, mode, is_export=True).as_estimator_spec()


def _whole_on_tpu(program: Program, features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """The model's spec with its predictions and export outputs as results of a TPU call."""
    built: list[Any] = []

    def computation(on_tpu_features: Any) -> Any:
        spec = program.call_model_fn(on_tpu_features, labels, mode, is_export=True)
        built.append(spec)
        outputs = {name: _tensors(name, each) for name, each in _export_outputs(spec).items()}
        return {"predictions": spec.predictions, "export_outputs": outputs}

    results = on_tpu(computation, features)
    (spec,) = built
    outputs = {
        name: type(each)(**results["export_outputs"][name])
        for name, each in _export_outputs(spec).items()
    }
    scaffold_fn = spec.scaffold_fn if isinstance(spec, TPUEstimatorSpec) else None
    return EstimatorSpec(
        mode=spec.mode,
        predictions=results["predictions"],
        export_outputs=outputs or None,
        scaffold=scaffold_fn() if scaffold_fn is not None else None,
    )


def _export_outputs(spec: Any) -> Mapping[str, Any]:
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
