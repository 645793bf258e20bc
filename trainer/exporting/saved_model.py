"""Exports the metagraphs of a model_fn as one SavedModel."""

import functools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import tensorflow as tf

from tpuserve import tags
from tpuserve.errors import ExportError, InvalidSetting
from tpuserve.export import MetagraphSpec, SavedModelWriter, WarmUp, signature_parity
from tpuserve.export.deprecation_filter import without_deprecations
from trainer.checkpoints import checkpoints, init_from_checkpoint, warm_start
from trainer.execution import run_graph
from trainer.exporting import strategies
from trainer.exporting.input_receivers import ServingInputReceiver, SupervisedInputReceiver
from trainer.exporting.strategies import ExportTargets
from trainer.inputs.nests import map_parts
from trainer.model.model_program import ModelProgram
from trainer.model.spec import EstimatorSpec, ModeKeys
from trainer.tensorflow_internals import model_utils

logger = logging.getLogger("tensorflow.trainer")

# The graph collection that holds the train_op of a metagraph tagged {train}. Loaders of SavedModels
# look for the train_op there.
_TRAIN_OP_COLLECTION = "saved_model_train_op"
# The modes in the order of their metagraphs in a SavedModel. The first metagraph's saver writes the
# variables of all metagraphs, so the training graph, which has the most variables, comes first.
_MODE_ORDER = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


def write_saved_model(
    program: ModelProgram,
    export_dir_base: str,
    input_receiver_fns: Mapping[str, Callable[[], Any]],
    targets: ExportTargets,
    *,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    checkpoint_path: str | None = None,
    strip_default_attrs: bool = True,
    warm_up: WarmUp | None = None,
) -> str:
    """Write a SavedModel of a model_fn, with the values of a checkpoint.

    Args:
      input_receiver_fns: mode → function that builds the placeholders and the features. The
        metagraphs of PREDICT are tagged {serve} and {serve, tpu}.
      assets_extra: path below assets.extra/ → path of the file to copy there.
      checkpoint_path: the checkpoint to export; None takes the newest checkpoint or, if the model
        was not trained, the checkpoint of its warm start.
      strip_default_attrs: whether to omit op attributes that have their default value, so that
        older TensorFlow versions can read the graph.

    Raises:
      ExportError: targets selects no metagraph, an export output cannot come from a TPU, or the
        checkpoint lacks a variable.
      InvalidSetting: a mode is unknown, or a receiver function returns a wrong type.
    """
    _check_receiver_fns(input_receiver_fns)
    _check_targets(targets, input_receiver_fns)
    checkpoint = _find_checkpoint(program, checkpoint_path)
    with SavedModelWriter(
        export_dir_base,
        assets_extra=assets_extra,
        as_text=as_text,
        strip_default_attrs=strip_default_attrs,
        warm_up=warm_up,
    ) as writer:
        first = None
        for metagraph in _build_metagraphs(program, input_receiver_fns, checkpoint, targets):
            first = first or metagraph
            _check_variables(first, metagraph)
            writer.add(metagraph)
    return writer.directory


def _find_checkpoint(program: ModelProgram, checkpoint_path: str | None) -> str:
    if not checkpoint_path and program.warm_start is not None:
        newest = checkpoints.find_checkpoint_or_none(program.model_dir)
        return newest or warm_start.find_source_checkpoint(program.warm_start)
    return checkpoints.find_checkpoint(program.model_dir, checkpoint_path)


def _check_targets(targets: ExportTargets, modes: Collection[str]) -> None:
    """Check that an export writes at least one metagraph."""
    if not (targets.to_cpu or targets.to_tpu):
        raise ExportError(
            "export_to_cpu and export_to_tpu are both False, so there is nothing to write. Set "
            "one of them."
        )
    if not targets.to_cpu and ModeKeys.PREDICT not in modes:
        raise ExportError(
            f"export_to_cpu is False, and a TPU metagraph is written for mode "
            f"{ModeKeys.PREDICT!r} alone; asked for {', '.join(sorted(modes))}. Set "
            f"export_to_cpu."
        )
    if targets.to_tpu and set(modes) - {ModeKeys.PREDICT}:
        logger.warning("TPU metagraphs are written for mode %r alone", ModeKeys.PREDICT)


def _build_metagraphs(
    program: ModelProgram,
    input_receiver_fns: Mapping[str, Callable[[], Any]],
    checkpoint: str,
    targets: ExportTargets,
) -> Iterator[MetagraphSpec]:
    """Build the metagraphs that `targets` selects, in the order in which they are written."""
    for mode in _MODE_ORDER:
        if mode not in input_receiver_fns:
            continue
        build = functools.partial(
            _build_metagraph, program, input_receiver_fns[mode], checkpoint, mode
        )
        if targets.to_cpu:
            cpu = build(strategies.build_cpu_spec, is_for_tpu=False)
            yield cpu
        if targets.to_tpu and mode == ModeKeys.PREDICT:
            tpu = build(strategies.TPU_SPEC_BUILDERS[targets.version], is_for_tpu=True)
            if targets.to_cpu:
                signature_parity.check_same_signatures(
                    cpu.signatures, tpu.signatures, "params['use_tpu']"
                )
            yield tpu


def _check_variables(first: MetagraphSpec, other: MetagraphSpec) -> None:
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


def _check_receiver_fns(input_receiver_fns: Mapping[str, Any]) -> None:
    """Check that there is at least one mode, and that each mode is known and has a function."""
    unknown = [mode for mode in input_receiver_fns if mode not in _MODE_ORDER]
    if unknown or not input_receiver_fns:
        raise InvalidSetting(
            f"no valid modes for export found: {sorted(input_receiver_fns)}. Give input receiver "
            f"functions for modes out of {', '.join(_MODE_ORDER)}."
        )
    for mode, receiver_fn in input_receiver_fns.items():
        if not callable(receiver_fn):
            raise InvalidSetting(
                f"{_function_name(mode)} is {receiver_fn!r}. Give a function that returns a "
                f"{_receiver_name(mode)}: serving_input_receiver_fn must be defined."
            )


def _build_metagraph(
    program: ModelProgram,
    receiver_fn: Callable[[], Any],
    checkpoint: str,
    mode: str,
    build_spec: strategies.SpecBuilder,
    *,
    is_for_tpu: bool,
) -> MetagraphSpec:
    with run_graph.new_run_graph(
        program.config,
        has_single_replica=not is_for_tpu,
        # A program of TensorFlow 1 fetches "w:0" for the value of w, which a handle is not.
        use_resource=True if is_for_tpu else None,
    ):
        receiver = _call_receiver_fn(receiver_fn, mode)
        features = _without_placeholders(receiver.features)
        labels = _without_placeholders(getattr(receiver, "labels", None))
        with init_from_checkpoint.skip_checkpoint_init():
            spec = build_spec(program, features, labels, mode)
        checkpoints.check_variable_shapes(checkpoint)
        signatures = _build_signatures(receiver, spec, mode)
        if spec.train_op is not None:
            tf.compat.v1.add_to_collection(_TRAIN_OP_COLLECTION, spec.train_op)
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


def _call_receiver_fn(receiver_fn: Callable[[], Any], mode: str) -> Any:
    """Call an input receiver function, and check the type of its result."""
    receiver = receiver_fn()
    receiver_type = ServingInputReceiver if mode == ModeKeys.PREDICT else SupervisedInputReceiver
    if not isinstance(receiver, (receiver_type, ServingInputReceiver)):
        raise InvalidSetting(
            f"{_function_name(mode)} returned {type(receiver).__name__}. Return a "
            f"{_receiver_name(mode)}."
        )
    return receiver


def _build_signatures(receiver: Any, spec: EstimatorSpec, mode: str) -> dict[str, Any]:
    """Build the SignatureDefs of a metagraph: signature name → SignatureDef."""
    predictions = spec.predictions
    if isinstance(predictions, Mapping) and not predictions:
        predictions = None
    outputs = model_utils.export_outputs_for_mode(
        mode,
        spec.export_outputs,
        predictions,
        spec.loss,
        spec.eval_metric_ops or None,
    )
    with without_deprecations():
        signatures: dict[str, Any] = model_utils.build_all_signature_defs(
            receiver.receiver_tensors,
            outputs,
            getattr(receiver, "receiver_tensors_alternatives", None),
            serving_only=mode == ModeKeys.PREDICT,
        )
    return signatures


def _function_name(mode: str) -> str:
    return "serving_input_receiver_fn" if mode == ModeKeys.PREDICT else f"input receiver of {mode}"


def _receiver_name(mode: str) -> str:
    if mode == ModeKeys.PREDICT:
        return "trainer.ServingInputReceiver"
    return "trainer.export.SupervisedInputReceiver"


def _without_placeholders(features: Any) -> Any:
    return map_parts(
        lambda part: tf.identity(part) if tf.is_tensor(part) else part, features, composites=True
    )
