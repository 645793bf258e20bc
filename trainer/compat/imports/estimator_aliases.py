"""Supplies the modules inside tensorflow_estimator that programs import by their full paths.

An example is tensorflow_estimator.python.estimator.run_config. The classes and functions in these
modules are those of tpuserve.
"""

from collections.abc import Mapping

from trainer.compat.contrib_module_aliases import MODULE_ALIASES
from trainer.compat.contrib_replacements import TPU_EMBEDDING
from trainer.compat.imports import install_names
from trainer.compat.source import estimator_names

_V1 = estimator_names.V1
_ROOT = _V1[""]


def _root_targets(names: str) -> dict[str, str]:
    return {name: _ROOT[name] for name in names.split()}


_KERAS = {"model_to_estimator": "trainer.compat.keras_estimator:model_to_estimator"}

_CONSTANTS = "trainer.compat.estimator_constants"

_RECEIVERS = {
    name: f"trainer.export:{name}"
    for name in (
        "ServingInputReceiver",
        "SupervisedInputReceiver",
        "TensorServingInputReceiver",
        "UnsupervisedInputReceiver",
        "build_parsing_serving_input_receiver_fn",
        "build_raw_serving_input_receiver_fn",
        "build_raw_supervised_input_receiver_fn",
        "build_supervised_input_receiver_fn_from_input_fn",
    )
}
# In tensorflow_estimator's export modules, these names come from TensorFlow: name → import target
# "module:attribute".
_SAVED_MODEL = {
    name: f"tensorflow.python.saved_model.model_utils:{name}"
    for name in (
        "EXPORT_TAG_MAP",
        "SIGNATURE_KEY_MAP",
        "build_all_signature_defs",
        "export_outputs_for_mode",
        "get_export_outputs",
        "get_temp_export_dir",
        "get_timestamped_export_dir",
    )
}
_EXPORT_LIB = {
    **_V1["export"],
    **_RECEIVERS,
    **_SAVED_MODEL,
    "TrainOutput": "tensorflow.python.saved_model.model_utils.export_output:TrainOutput",
}

_READ_GLOBAL_STEP = "trainer.compat.checkpoint_step:read_latest_global_step"

TPU_EMBEDDING_MODULE = "tensorflow.python.tpu.tpu_embedding"
TPU_EMBEDDING_NAMES = {
    **{name: f"trainer.embedding.config:{name}" for name in ("FeatureConfig", "TableConfig")},
    **{
        name: target
        for name, target in _V1["tpu.experimental"].items()
        if name != "EmbeddingConfigSpec"
    },
    **{
        name: f"trainer.embedding.private_parameters:{name}"
        for name in (
            "AdagradMomentumParameters",
            "MomentumParameters",
            "ProximalAdagradParameters",
            "ProximalYogiParameters",
            "RMSPropParameters",
        )
    },
}
_NOT_IN_TPU_EMBEDDING = {
    "FrequencyEstimatorParameters": "Count the ids in input_fn, and give model_fn the frequencies.",
    "TPUEmbedding": TPU_EMBEDDING,
}

# The supplied modules. Each key is the path of a module below
# tensorflow_estimator.python.estimator, "" for that package itself.
MODULES: Mapping[str, Mapping[str, str]] = {
    # The packages whose modules `EstimatorFinder` finds.
    "": {name: f"tensorflow_estimator.python.estimator.{name}:" for name in ("canned", "head")},
    "early_stopping": {
        name: target for name, target in _V1["experimental"].items() if "stop" in name
    },
    "estimator": {
        **_root_targets("Estimator VocabInfo WarmStartSettings"),
        # Supply EstimatorV2: in tensorflow_estimator, the class tf.estimator.Estimator of
        # TensorFlow 2 is defined under this name.
        "EstimatorV2": _ROOT["Estimator"],
        # Supply the private function _load_global_step_from_checkpoint_dir, because Google's TPU
        # sample programs call it to find the global step from which training resumes.
        "_load_global_step_from_checkpoint_dir": _READ_GLOBAL_STEP,
        "_canned_estimator_api_gauge": f"{_CONSTANTS}:NO_GAUGE",
    },
    "estimator_export": {"estimator_export": f"{_CONSTANTS}:estimator_export"},
    "estimator_lib": _ROOT,
    "export": {},
    "export.export": _EXPORT_LIB,
    "export.export_lib": _EXPORT_LIB,
    "export.export_output": _EXPORT_LIB,
    "exporter": _root_targets("BestExporter Exporter FinalExporter LatestExporter"),
    "extenders": _root_targets("add_metrics"),
    "hooks": {},
    "hooks.hooks": {
        name: _V1["experimental"][name]
        for name in ("InMemoryEvaluatorHook", "make_stop_at_checkpoint_step_hook")
    },
    "inputs": {},
    "inputs.inputs": _V1["inputs"],
    "inputs.numpy_io": {"numpy_input_fn": _V1["inputs"]["numpy_input_fn"]},
    "inputs.pandas_io": {"pandas_input_fn": _V1["inputs"]["pandas_input_fn"]},
    "keras": _KERAS,
    "keras_lib": {**_KERAS, "FormattedKeyError": "tpuserve.errors:MissingKey"},
    "mode_keys": _root_targets("ModeKeys"),
    "model_fn": {
        **_root_targets("EstimatorSpec ModeKeys"),
        "_TPUEstimatorSpec": "trainer.compat.canned_heads:HeadTPUEstimatorSpec",
        "call_logit_fn": _V1["experimental"]["call_logit_fn"],
        "LOSS_METRIC_KEY": f"{_CONSTANTS}:LOSS_METRIC_KEY",
        "AVERAGE_LOSS_METRIC_KEY": f"{_CONSTANTS}:AVERAGE_LOSS_METRIC_KEY",
    },
    "run_config": {**_root_targets("RunConfig"), "TaskType": f"{_CONSTANTS}:TaskType"},
    "training": _root_targets("EvalSpec TrainSpec train_and_evaluate"),
    "util": {"fn_args": "trainer.tensorflow_internals:fn_args"},
}

# The packages that contain the modules of tf.estimator in different versions of TensorFlow.
ROOTS = ("tensorflow_estimator.python.estimator", "tensorflow.python.estimator")


_TPU_ALIASES = "tpu.python.tpu."


def register_estimator_aliases() -> None:
    """Register tensorflow_estimator and the modules of it that tpuserve supplies."""
    namespaces = {
        **MODULES,
        "tpu": {
            alias.removeprefix(_TPU_ALIASES): f"{module}:"
            for alias, module in MODULE_ALIASES.items()
            if alias.startswith(_TPU_ALIASES)
        },
    }
    for root in ROOTS:
        install_names.register_lazy_modules(root, root, namespaces, estimator_names.UNSUPPORTED)
    # Supply the module tpu_embedding, which TensorFlow has removed from `tensorflow.python.tpu`.
    install_names.register_lazy_modules(
        TPU_EMBEDDING_MODULE, TPU_EMBEDDING_MODULE, {"": TPU_EMBEDDING_NAMES}, _NOT_IN_TPU_EMBEDDING
    )
    api = "tensorflow.compat.v1.estimator:"
    install_names.register_lazy_modules(
        "tensorflow_estimator",
        "tensorflow_estimator",
        {
            "": {"estimator": api},
            "python": {"estimator": "tensorflow_estimator.python.estimator:"},
            "compat": {},
            "compat.v1": {"estimator": api},
        },
        {},
    )
