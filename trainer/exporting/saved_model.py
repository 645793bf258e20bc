"""The metagraphs of a model_fn, written as one SavedModel."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model import model_utils

from tpuserve import tags
from tpuserve.errors import ExportError, InvalidSetting
from tpuserve.export import MetagraphSpec, SavedModelWriter, WarmUp, signature_parity
from tpuserve.export.deprecation_filter import without_deprecations
from trainer.checkpoints import checkpoints, init_from_checkpoint
from trainer.execution import run_graph
from trainer.exporting import strategies
from trainer.exporting.input_receivers import ServingInputReceiver, SupervisedInputReceiver
from trainer.exporting.strategies import ExportSavedModelApiVersion
from trainer.model import eval_metrics
from trainer.model.model_program import ModelProgram
from trainer.model.spec import ModeKeys

# Where a loader looks for the step of a metagraph that can be trained on.
_TRAIN_OP = "saved_model_train_op"
# The first metagraph carries the variables of all, and a model in training has the most.
_ORDER = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


def write_saved_model(
    program: ModelProgram,
    export_dir_base: str,
    input_receiver_fns: Mapping[str, Callable[[], Any]],
    *,
    to_cpu: bool = True,
    to_tpu: bool = False,
    version: ExportSavedModelApiVersion = ExportSavedModelApiVersion.V1,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    checkpoint_path: str | None = None,
    strip_default_attrs: bool = True,
    warm_up: WarmUp | None = None,
) -> str:
    """Writes a checkpoint as a SavedModel; returns its version directory.

    Args:
      program: what to export.
      export_dir_base: where version directories live.
      input_receiver_fns: mode → function that builds the placeholders and the features. PREDICT
        is tagged {serve}, TRAIN {train} and EVAL {eval}.
      to_cpu: write a metagraph of each mode, the model as it is.
      to_tpu: write the metagraph {serve, tpu} of PREDICT.
      version: who places that on the TPU.
      assets_extra: path below assets.extra/ → file to copy there.
      as_text: write saved_model.pbtxt in place of saved_model.pb.
      checkpoint_path: which checkpoint; None for the newest.
      strip_default_attrs: leave out attributes of ops that have their default value, so that
        older TensorFlows can read the graph.
      warm_up: which warm-up records to write for a server; None for none.

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
    if not to_cpu and ModeKeys.PREDICT not in input_receiver_fns:
        raise ExportError(
            f"export_to_cpu is False, and a TPU metagraph is written for mode "
            f"{ModeKeys.PREDICT!r} alone; asked for {', '.join(sorted(input_receiver_fns))}. Set "
            f"export_to_cpu."
        )
    checkpoint = checkpoints.find_checkpoint(program.model_dir, checkpoint_path)
    with SavedModelWriter(
        export_dir_base,
        assets_extra=assets_extra,
        as_text=as_text,
        strip_default_attrs=strip_default_attrs,
        warm_up=warm_up,
    ) as writer:
        first = None
        for each in _metagraphs(
            program,
            input_receiver_fns,
            checkpoint,
            to_cpu=to_cpu,
            version=version if to_tpu else None,
        ):
            first = first or each
            _check_variables(first, each)
            writer.add(each)
    return writer.directory


def _metagraphs(
    program: ModelProgram,
    input_receiver_fns: Mapping[str, Callable[[], Any]],
    checkpoint: str,
    *,
    to_cpu: bool,
    version: ExportSavedModelApiVersion | None,
) -> Iterator[MetagraphSpec]:
    for mode in _ORDER:
        if mode not in input_receiver_fns:
            continue
        build = functools.partial(_metagraph, program, input_receiver_fns[mode], checkpoint, mode)
        if to_cpu:
            cpu = build(strategies.build_cpu_spec, is_for_tpu=False)
            yield cpu
        if version is not None and mode == ModeKeys.PREDICT:
            tpu = build(strategies.TPU_SPEC_BUILDERS[version], is_for_tpu=True)
            if to_cpu:
                signature_parity.check_same_signatures(
                    cpu.signatures, tpu.signatures, "params['use_tpu']"
                )
            yield tpu


def _check_variables(first: MetagraphSpec, other: MetagraphSpec) -> None:
    """Refuses a metagraph with variables that the first one, whose are written, has not."""
    missing = sorted(
        checkpoints.saved_variable_names(other.saver)
        - checkpoints.saved_variable_names(first.saver)
    )
    if missing:
        raise ExportError(
            f"metagraph {tags.format_tags(other.tags)} has variables that "
            f"{tags.format_tags(first.tags)}, whose variables are written for all, has not: "
            f"{', '.join(missing)}. Make the same variables in model_fn for both."
        )


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
    program: ModelProgram,
    receiver_fn: Callable[[], Any],
    checkpoint: str,
    mode: str,
    place: strategies.SpecBuilder,
    *,
    is_for_tpu: bool,
) -> MetagraphSpec:
    with run_graph.new_run_graph(program.config, has_single_replica=not is_for_tpu):
        receiver = receiver_fn()
        wanted = ServingInputReceiver if mode == ModeKeys.PREDICT else SupervisedInputReceiver
        if not isinstance(receiver, (wanted, ServingInputReceiver)):
            raise InvalidSetting(
                f"{_function_name(mode)} returned {type(receiver).__name__}. Return a "
                f"{_receiver_name(mode)}."
            )
        features = _apart_from_placeholders(receiver.features)
        labels = _apart_from_placeholders(getattr(receiver, "labels", None))
        with init_from_checkpoint.skip_checkpoint_init():
            spec = place(program, features, labels, mode)
        checkpoints.check_variable_shapes(checkpoint)
        outputs = model_utils.export_outputs_for_mode(
            mode,
            spec.export_outputs,
            None if _is_empty(spec.predictions) else spec.predictions,
            spec.loss,
            eval_metrics.value_update_pairs(spec.eval_metric_ops or {}) or None,
        )
        with without_deprecations():
            signatures = model_utils.build_all_signature_defs(
                receiver.receiver_tensors,
                outputs,
                getattr(receiver, "receiver_tensors_alternatives", None),
                serving_only=mode == ModeKeys.PREDICT,
            )
        if spec.train_op is not None:
            tf.compat.v1.add_to_collection(_TRAIN_OP, spec.train_op)
        scaffold = checkpoints.scaffold_with_saver(spec.scaffold, program.config)
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
