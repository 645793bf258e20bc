"""The private modules, functions and classes of TensorFlow that trainer uses.

No other module of trainer imports from `tensorflow.python`, except `trainer.compat.contrib`, which
re-exports old names.

Importing this module does not import TensorFlow: a name is resolved at its first use.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tpuserve import tensorflow_internals
from tpuserve.errors import UnsupportedVersion
from tpuserve.tensorflow_internals import (
    import_private_name,
    list_missing_attributes,
    unsupported_tensorflow,
)

if TYPE_CHECKING:
    # Import classes for type checkers only. At run time, `__getattr__` imports them.
    from tensorflow.python.saved_model.model_utils.export_output import (
        ClassificationOutput as ClassificationOutput,
    )
    from tensorflow.python.saved_model.model_utils.export_output import EvalOutput as EvalOutput
    from tensorflow.python.saved_model.model_utils.export_output import (
        ExportOutput as ExportOutput,
    )
    from tensorflow.python.saved_model.model_utils.export_output import (
        PredictOutput as PredictOutput,
    )
    from tensorflow.python.saved_model.model_utils.export_output import (
        RegressionOutput as RegressionOutput,
    )
    from tensorflow.python.tpu.topology import Topology as Topology
    from tensorflow.python.tpu.tpu_system_metadata import TPUSystemMetadata as TPUSystemMetadata
    from tensorflow.python.training.warm_starting_util import VocabInfo as VocabInfo

_PACKAGE = "trainer"
_EXPORT_OUTPUT = "tensorflow.python.saved_model.model_utils.export_output"

# The objects that other modules can import from this module: name here → (TensorFlow module,
# attribute of the TensorFlow module). If the attribute is "", the object is the module itself.
_NAMES: dict[str, tuple[str, str]] = {
    "ClassificationOutput": (_EXPORT_OUTPUT, "ClassificationOutput"),
    "CloudTPUPreemptedHook": ("tensorflow.python.tpu.preempted_hook", "CloudTPUPreemptedHook"),
    "EvalOutput": (_EXPORT_OUTPUT, "EvalOutput"),
    "ExportOutput": (_EXPORT_OUTPUT, "ExportOutput"),
    "ObjectGraphView": ("tensorflow.python.checkpoint.graph_view", "ObjectGraphView"),
    "PredictOutput": (_EXPORT_OUTPUT, "PredictOutput"),
    "RegressionOutput": (_EXPORT_OUTPUT, "RegressionOutput"),
    "StagingError": ("tensorflow.python.autograph.impl.api", "StagingError"),
    "TPUSystemMetadata": ("tensorflow.python.tpu.tpu_system_metadata", "TPUSystemMetadata"),
    "Topology": ("tensorflow.python.tpu.topology", "Topology"),
    "VocabInfo": ("tensorflow.python.training.warm_starting_util", "VocabInfo"),
    "autograph_util": ("tensorflow.python.eager.polymorphic_function.autograph_util", ""),
    "checkpoint_utils": ("tensorflow.python.training.checkpoint_utils", ""),
    "control_flow_ops": ("tensorflow.python.ops.control_flow_ops", ""),
    "control_flow_util": ("tensorflow.python.ops.control_flow_util", ""),
    "defined_function": ("tensorflow.python.framework.function", ""),
    "deprecation": ("tensorflow.python.util.deprecation", ""),
    "device_assignment": ("tensorflow.python.tpu.device_assignment", ""),
    "eager_context": ("tensorflow.python.eager.context", ""),
    "evaluation": ("tensorflow.python.training.evaluation", ""),
    "feature_column_v2": ("tensorflow.python.feature_column.feature_column_v2", ""),
    "fn_args": ("tensorflow.python.util.function_utils", "fn_args"),
    "func_graph_from_py_func": (
        "tensorflow.python.framework.func_graph",
        "func_graph_from_py_func",
    ),
    "gen_xla_ops": ("tensorflow.compiler.tf2xla.ops.gen_xla_ops", ""),
    "get_optimizer_variable_key": ("tensorflow.python.training.optimizer", "_var_key"),
    "graph_io": ("tensorflow.python.framework.graph_io", ""),
    "is_op_determinism_enabled": (
        "tensorflow.python.framework.config",
        "is_op_determinism_enabled",
    ),
    "model_utils": ("tensorflow.python.saved_model.model_utils", ""),
    "module_wrapper": ("tensorflow.python.util.module_wrapper", ""),
    "monitored_session": ("tensorflow.python.training.monitored_session", ""),
    "nest": ("tensorflow.python.util.nest", ""),
    "ops": ("tensorflow.python.framework.ops", ""),
    "pywrap_tensorflow": ("tensorflow.python.pywrap_tensorflow", ""),
    "saved_model_builder": ("tensorflow.python.saved_model.builder_impl", ""),
    "session_interface": ("tensorflow.python.client.session", ""),
    "summary_ops_v2": ("tensorflow.python.ops.summary_ops_v2", ""),
    "tensor_util": ("tensorflow.python.framework.tensor_util", ""),
    "tpu": ("tensorflow.python.tpu.tpu", ""),
    "tpu_cluster_resolver": (
        "tensorflow.python.distribute.cluster_resolver.tpu.tpu_cluster_resolver",
        "",
    ),
    "tpu_feature_column": ("tensorflow.python.tpu.feature_column", ""),
    "tpu_feature_column_v2": ("tensorflow.python.tpu.feature_column_v2", ""),
    "tpu_feed": ("tensorflow.python.tpu.tpu_feed", ""),
    "tpu_function": ("tensorflow.python.tpu.tpu_function", ""),
    "tpu_ops": ("tensorflow.python.tpu.ops.tpu_ops", ""),
    "tpu_optimizer": ("tensorflow.python.tpu.tpu_optimizer", ""),
    "tpu_system_metadata": ("tensorflow.python.tpu.tpu_system_metadata", ""),
    "tpu_topology": ("tensorflow.python.tpu.topology", ""),
    "update_checkpoint_state": (
        "tensorflow.python.checkpoint.checkpoint_management",
        "update_checkpoint_state_internal",
    ),
    "warm_starting_util": ("tensorflow.python.training.warm_starting_util", ""),
    "while_v2": ("tensorflow.python.ops.while_v2", ""),
}
# Name in `_NAMES` of a TensorFlow module → the attributes of this module that trainer uses. They
# are checked when the module is imported.
_MODULE_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "ObjectGraphView": ("frozen_saveable_objects",),
    "autograph_util": ("py_func_from_autograph",),
    "checkpoint_utils": ("_set_checkpoint_initializer",),
    "control_flow_ops": ("XLAControlFlowContext",),
    "control_flow_util": ("GetContainingWhileContext", "GraphOrParentsInXlaContext"),
    "defined_function": ("_from_definition",),
    "deprecation": ("silence",),
    "device_assignment": ("DeviceAssignment", "device_assignment"),
    "eager_context": ("eager_mode", "global_seed"),
    "evaluation": ("_StopAfterNEvalsHook", "_get_or_create_eval_step"),
    "feature_column_v2": ("FeatureTransformationCache",),
    "gen_xla_ops": ("xla_replica_id",),
    "graph_io": ("text_format",),
    "model_utils": (
        "EXPORT_TAG_MAP",
        "ExportOutput",
        "build_all_signature_defs",
        "export_outputs_for_mode",
        "get_export_outputs",
    ),
    "module_wrapper": ("_PER_MODULE_WARNING_LIMIT",),
    "monitored_session": ("_MonitoredSession",),
    "nest": (
        "flatten",
        "flatten_up_to",
        "flatten_with_tuple_paths",
        "map_structure",
        "pack_sequence_as",
    ),
    "saved_model_builder": ("SavedModelBuilder",),
    "session_interface": ("SessionInterface",),
    "summary_ops_v2": ("summary_writer_initializer_op",),
    "tensor_util": ("constant_value",),
    "tpu": ("_TPUInferenceContext", "split_compile_and_replicate"),
    "tpu_cluster_resolver": ("TPUClusterResolver",),
    "tpu_feed": ("partition_or_replicate_on_host", "tag_sharding_attribute_for_dequeued_tensors"),
    "tpu_feature_column": ("_TPUEmbeddingColumn", "_TPUSharedEmbeddingColumn", "_TPU_FC_TO_SCOPE"),
    "tpu_feature_column_v2": (
        "_TPUDeviceSpecificEmbeddingColumnV2",
        "_TPUEmbeddingColumnV2",
        "_TPUSharedDeviceSpecificEmbeddingColumnV2",
        "_TPUSharedEmbeddingColumnV2",
    ),
    "tpu_function": ("get_tpu_context", "tpu_shard_context"),
    "tpu_ops": (
        "configure_distributed_tpu",
        "infeed_dequeue_tuple",
        "infeed_enqueue",
        "infeed_enqueue_tuple",
        "outfeed_dequeue",
        "outfeed_dequeue_tuple",
        "outfeed_enqueue_tuple",
        "shutdown_distributed_tpu",
    ),
    "tpu_optimizer": ("CrossShardOptimizer",),
    "tpu_system_metadata": ("_query_tpu_system_metadata",),
    "tpu_topology": ("_tpu_device_name", "_tpu_host_device_name"),
    "warm_starting_util": ("warm_start",),
    "while_v2": ("while_loop",),
}
# Name of a TensorFlow class → the private attributes of its objects that trainer uses.
# `check_tensorflow_internals` checks that they exist.
_OBJECT_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "StopAfterNEvalsHook": ("_set_evals_completed_tensor",),
    "tf.DType": ("_is_ref_dtype",),
    "tf.Graph": (
        "_add_function",
        "_create_op_internal",
        "_get_control_flow_context",
        "_is_loss_scaled_by_optimizer",
        "_set_control_flow_context",
    ),
    "tf.Operation": (
        "_add_control_input",
        "_add_control_inputs",
        "_get_control_flow_context",
        "_id",
        "_set_attr",
        "_set_func_attr",
        "_update_input",
    ),
    "tf.Tensor": ("_handle_data",),
    "tf.Variable": ("_save_slice_info", "_shared_name"),
    "tf.compat.v1.tpu.CrossShardOptimizer": ("_opt", "_reduction"),
    "tf.compat.v1.tpu.experimental.embedding_column": (
        "_embedding_lookup_device",
        "_tensor_core_shape",
    ),
    "tf.compat.v1.train.AdamOptimizer": ("_lr",),
    "tf.compat.v1.train.CheckpointSaverHook": ("_listeners", "_saver", "_set_steps_per_run"),
    "tf.compat.v1.train.GradientDescentOptimizer": (
        "_deferred_slot_restorations",
        "_learning_rate",
        "_non_slot_dict",
        "_slots",
    ),
    "tf.compat.v1.train.LoggingTensorHook": ("_tensors",),
    "tf.compat.v1.train.NanTensorHook": ("_loss_tensor",),
    "tf.compat.v1.train.Saver": ("_is_built", "_var_list"),
    "tf.compat.v1.train.Scaffold": ("_saver",),
    "tf.compat.v1.train.StopAtStepHook": ("_last_step",),
    "tf.distribute.Strategy": ("_scale_loss_for_estimator_enabled",),
    "tf.distribute.cluster_resolver.TPUClusterResolver": ("_cloud_tpu_client",),
    "tf.lookup.StaticHashTable": ("_initialize",),
}


def __getattr__(name: str) -> Any:
    """Return the private TensorFlow object with a name in `_NAMES`; import its module.

    Python calls this function for a name that this module does not define.
    """
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = import_private_name(
        *_NAMES[name], package=_PACKAGE, used=_MODULE_ATTRIBUTES.get(name, ())
    )
    globals()[name] = value
    return value


def get_private_attribute(value: Any, attribute: str) -> Any:
    """Return a private attribute of a TensorFlow object."""
    return tensorflow_internals.get_private_attribute(value, attribute, _PACKAGE)


def set_private_attribute(value: Any, attribute: str, replacement: Any) -> None:
    """Replace the value of a private attribute of a TensorFlow object."""
    get_private_attribute(value, attribute)
    setattr(value, attribute, replacement)


def find_private_attribute(value: Any, attribute: str, default: Any = None) -> Any:
    """Return a private attribute that only some objects of a kind have.

    The attribute must be in `_OBJECT_ATTRIBUTES`, so that a test checks that TensorFlow has it.
    """
    return getattr(value, attribute, default)


def set_scaffold_saver(scaffold: Any, saver: Any) -> None:
    """Replace the saver of an existing tf.compat.v1.train.Scaffold."""
    set_private_attribute(scaffold, "_saver", saver)


def get_saver_variables(saver: Any) -> Any:
    """Return the variables of a tf.compat.v1.train.Saver whose ops are built.

    Returns:
      A dict name → variable, or a list of variables; None for a Saver that was created from a
      SaverDef.
    """
    return get_private_attribute(saver, "_var_list")


def get_hook_saver(hook: Any) -> Any:
    """Return the Saver of a CheckpointSaverHook; None if the hook was created without a Saver."""
    return get_private_attribute(hook, "_saver")


def is_saver_built(saver: Any) -> bool:
    """Return whether a Saver has added its ops to a graph."""
    return bool(get_private_attribute(saver, "_is_built"))


def reset_saver(saver: Any) -> None:
    """Reset a Saver that has added its ops to a graph, so that it can add them to another graph."""
    saver.saver_def = None
    set_private_attribute(saver, "_is_built", False)


@contextlib.contextmanager
def added_saving_listeners(hook: Any, listeners: Iterable[Any]) -> Iterator[None]:
    """Add CheckpointSaverListeners to an existing CheckpointSaverHook, until the context ends."""
    own_listeners = get_private_attribute(hook, "_listeners")
    set_private_attribute(hook, "_listeners", [*own_listeners, *listeners])
    try:
        yield
    finally:
        set_private_attribute(hook, "_listeners", own_listeners)


def get_stop_step(hook: Any) -> int | None:
    """Return the global step at which a StopAtStepHook stops.

    Returns:
      The step; None if the hook was created with num_steps, and its session does not exist yet.
    """
    step: int | None = get_private_attribute(hook, "_last_step")
    return step


def check_tensorflow_internals() -> None:
    """Check that the installed TensorFlow has every private name that trainer uses.

    This function imports TensorFlow.

    Raises:
      UnsupportedVersion: names are missing; the message lists them all.
    """
    missing: list[str] = []
    for name, path in _NAMES.items():
        try:
            value = import_private_name(*path)
        except UnsupportedVersion:
            missing.append(".".join(path).rstrip("."))
        else:
            missing += list_missing_attributes(name, value, _MODULE_ATTRIBUTES.get(name, ()))
    for name, value in _make_objects().items():
        missing += list_missing_attributes(name, value, _OBJECT_ATTRIBUTES[name])
    if missing:
        raise unsupported_tensorflow(missing, _PACKAGE)


def _make_objects() -> dict[str, Any]:
    """Make an object of each class in `_OBJECT_ATTRIBUTES`, to check its private attributes."""
    import tensorflow as tf

    v1 = tf.compat.v1
    evaluation = __getattr__("evaluation")
    eager_tensor = tf.constant(1)
    with tf.Graph().as_default() as graph:
        loss = tf.constant(1.0)
        variable = v1.get_variable("variable", [])
        sgd = v1.train.GradientDescentOptimizer(0.1)
        return {
            "StopAfterNEvalsHook": evaluation._StopAfterNEvalsHook(1),
            "tf.DType": loss.dtype,
            "tf.Graph": graph,
            "tf.Operation": loss.op,
            "tf.Tensor": eager_tensor,
            "tf.Variable": variable,
            "tf.compat.v1.tpu.CrossShardOptimizer": v1.tpu.CrossShardOptimizer(sgd),
            "tf.compat.v1.tpu.experimental.embedding_column": _make_embedding_column(),
            "tf.compat.v1.train.AdamOptimizer": v1.train.AdamOptimizer(),
            "tf.compat.v1.train.CheckpointSaverHook": v1.train.CheckpointSaverHook(
                "", save_steps=1
            ),
            "tf.compat.v1.train.GradientDescentOptimizer": sgd,
            "tf.compat.v1.train.LoggingTensorHook": v1.train.LoggingTensorHook(
                [loss], every_n_iter=1
            ),
            "tf.compat.v1.train.NanTensorHook": v1.train.NanTensorHook(loss),
            "tf.compat.v1.train.Saver": v1.train.Saver([variable]),
            "tf.compat.v1.train.Scaffold": v1.train.Scaffold(),
            "tf.compat.v1.train.StopAtStepHook": v1.train.StopAtStepHook(last_step=1),
            "tf.distribute.Strategy": tf.distribute.get_strategy(),
            "tf.distribute.cluster_resolver.TPUClusterResolver": (
                tf.distribute.cluster_resolver.TPUClusterResolver("local")
            ),
            "tf.lookup.StaticHashTable": tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer([0], [0]), 0
            ),
        }


def _make_embedding_column() -> Any:
    """Return a feature column that is looked up in a table on the TensorCore."""
    import tensorflow as tf

    with __getattr__("deprecation").silence():
        return tf.compat.v1.tpu.experimental.embedding_column(
            tf.feature_column.categorical_column_with_identity("column", 1),
            1,
            tensor_core_shape=[None, 1],
            embedding_lookup_device="tpu_tensor_core",
        )
