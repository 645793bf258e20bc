"""Tables of names that TensorFlow has moved out of the private modules that had them.

Programs and packages for TensorFlow 1, such as tf_slim, read these names in the old places. This
module does not import TensorFlow.
"""

from collections.abc import Mapping

_OPS = "tensorflow.python.ops"
_FRAMEWORK = "tensorflow.python.framework"
_EAGER = "tensorflow.python.eager"
_KERAS_NORMALIZATION = "tf_keras.src.legacy_tf_layers.normalization"
_TOGGLES = f"{_OPS}.resource_variables_toggle"
_VARIABLE_V1 = f"{_OPS}.variable_v1:VariableV1"


def _targets(module: str, names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names.split()}


_BATCH_NORMALIZATION = {
    "BatchNorm": f"{_KERAS_NORMALIZATION}:BatchNormalization",
    "BatchNormalization": f"{_KERAS_NORMALIZATION}:BatchNormalization",
    "batch_norm": f"{_KERAS_NORMALIZATION}:batch_normalization",
    "batch_normalization": f"{_KERAS_NORMALIZATION}:batch_normalization",
}

# TensorFlow's module → name that it had → import target "module:attribute", where the name is now.
NAMES: Mapping[str, Mapping[str, str]] = {
    "tensorflow.python.data.util.nest": {"is_sequence": "tensorflow.python.util.nest:is_nested"},
    f"{_EAGER}.function": {"defun": "tensorflow:function"},
    f"{_EAGER}.tape": _targets(
        f"{_EAGER}.record", "could_possibly_record record_operation stop_recording"
    ),
    "tensorflow.python.feature_column.feature_column_v2": _targets(
        "tensorflow.python.feature_column.feature_column_v2_types", "FeatureColumn"
    ),
    f"{_FRAMEWORK}.graph_util": _targets(
        "tensorflow.compat.v1.graph_util", "convert_variables_to_constants"
    ),
    f"{_FRAMEWORK}.graph_util_impl": _targets(
        "tensorflow.compat.v1.graph_util", "convert_variables_to_constants"
    ),
    f"{_FRAMEWORK}.ops": {
        **_targets("tensorflow", "IndexedSlices SparseTensor Tensor"),
        **_targets(
            f"{_FRAMEWORK}.indexed_slices",
            "IndexedSlicesValue convert_n_to_tensor_or_indexed_slices "
            "convert_to_tensor_or_indexed_slices internal_convert_n_to_tensor_or_indexed_slices "
            "internal_convert_to_tensor_or_indexed_slices",
        ),
        **_targets(f"{_FRAMEWORK}.tensor", "disable_tensor_equality enable_tensor_equality"),
        **_targets(f"{_FRAMEWORK}.tensor_conversion", "convert_to_tensor_v2"),
        **_targets("tensorflow", "register_tensor_conversion_function"),
    },
    "tensorflow.python.layers.layers": _BATCH_NORMALIZATION,
    "tensorflow.python.layers.normalization": _BATCH_NORMALIZATION,
    f"{_OPS}.array_ops": _targets(f"{_OPS}.array_ops_stack", "stack unstack"),
    f"{_OPS}.control_flow_ops": {
        **_targets(f"{_OPS}.control_flow_assert", "Assert"),
        **_targets(f"{_OPS}.control_flow_case", "case case_v2"),
        **_targets(f"{_OPS}.control_flow_switch_case", "switch_case"),
        **_targets(f"{_OPS}.cond", "cond cond_for_tf_v2"),
        **_targets(f"{_OPS}.while_loop", "while_loop while_loop_v2"),
    },
    f"{_OPS}.nn_impl": _targets(
        f"{_OPS}.nn_impl_distribute", "compute_average_loss scale_regularization_loss"
    ),
    f"{_OPS}.random_ops": _targets(f"{_OPS}.random_crop_ops", "random_crop"),
    f"{_OPS}.variable_scope": {
        **_targets(
            _TOGGLES,
            "disable_resource_variables enable_resource_variables resource_variables_enabled",
        ),
        "variable": _VARIABLE_V1,
    },
    f"{_OPS}.variables": {
        **_targets(f"{_OPS}.ref_variable", "RefVariable"),
        **_targets(f"{_OPS}.variable_v1", "is_variable_initialized"),
        "VariableV1": _VARIABLE_V1,
    },
    "tensorflow.python.saved_model.utils_impl": _targets(
        "tensorflow.python.saved_model.path_helpers",
        "get_assets_dir get_or_create_assets_dir get_or_create_variables_dir get_variables_dir "
        "get_variables_path",
    ),
    "tensorflow.python.tpu.tpu": _targets(
        "tensorflow.python.tpu.tpu_replication", "TPUReplicateContext outside_compilation"
    ),
}

_TRACKING = "tensorflow.python.training.tracking"
_TRACKABLE = "tensorflow.python.trackable"

# Module that TensorFlow had → the module that replaces it; "" for a package of other modules here.
MODULES: Mapping[str, str] = {
    "tensorflow.python.distribute.distribution_strategy_context": (
        "tensorflow.python.distribute.distribute_lib"
    ),
    f"{_EAGER}.profiler": "trainer.compat.eager_profiler",
    _TRACKING: "",
    f"{_TRACKING}.base": f"{_TRACKABLE}.base",
    f"{_TRACKING}.data_structures": f"{_TRACKABLE}.data_structures",
    f"{_TRACKING}.graph_view": "tensorflow.python.checkpoint.graph_view",
    f"{_TRACKING}.layer_utils": f"{_TRACKABLE}.layer_utils",
    f"{_TRACKING}.python_state": f"{_TRACKABLE}.python_state",
    f"{_TRACKING}.tracking": f"{_TRACKABLE}.autotrackable",
    f"{_TRACKING}.util": "tensorflow.python.checkpoint.checkpoint",
}
