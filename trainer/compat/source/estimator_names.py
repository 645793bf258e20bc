"""Tables of the symbols of tf.estimator, and of what replaces those that tpuserve lacks.

A name that is in none of the tables was never a public symbol of tf.estimator. This module does not
import TensorFlow.
"""

from collections.abc import Mapping

# The type of a table of the names of tf.estimator that tpuserve supplies. Each key is the path of a
# module below tf.estimator; "" is tf.estimator itself.
Namespaces = Mapping[str, Mapping[str, str]]


def _in_module(module: str, names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names.split()}


_ROOT = _in_module(
    "trainer",
    """
    BestExporter CheckpointSaverHook CheckpointSaverListener Estimator EstimatorSpec EvalSpec
    Exporter FeedFnHook FinalExporter FinalOpsHook GlobalStepWaiterHook LatestExporter
    LoggingTensorHook ModeKeys NanLossDuringTrainingError NanTensorHook ProfilerHook RunConfig
    SecondOrStepTimer SessionRunArgs SessionRunContext SessionRunHook SessionRunValues
    StepCounterHook StopAtStepHook SummarySaverHook TrainSpec VocabInfo WarmStartSettings
    add_metrics classifier_parse_example_spec regressor_parse_example_spec train_and_evaluate
    """,
)

_EXPORT = _in_module(
    "trainer.export",
    """
    ClassificationOutput EvalOutput ExportOutput PredictOutput RegressionOutput
    ServingInputReceiver SupervisedInputReceiver TensorServingInputReceiver
    build_parsing_serving_input_receiver_fn build_raw_serving_input_receiver_fn
    """,
)

_EXPERIMENTAL = _in_module(
    "trainer.experimental",
    """
    InMemoryEvaluatorHook build_raw_supervised_input_receiver_fn call_logit_fn
    dnn_logit_fn_builder linear_logit_fn_builder make_early_stopping_hook
    make_stop_at_checkpoint_step_hook stop_if_higher_hook stop_if_lower_hook
    stop_if_no_decrease_hook stop_if_no_increase_hook
    """,
)

_CANNED = "tensorflow_estimator.python.estimator.canned"
_HEAD = "tensorflow_estimator.python.estimator.head"
# Module of tensorflow_estimator → its classes whose version for TensorFlow 2 is named ...V2.
_CANNED_CLASSES = {
    f"{_CANNED}.{module}": [f"{prefix}{kind}" for kind in ("Classifier", "Estimator", "Regressor")]
    for module, prefix in (
        ("baseline", "Baseline"),
        ("dnn", "DNN"),
        ("dnn_linear_combined", "DNNLinearCombined"),
        ("linear", "Linear"),
    )
}
_HEADS = {
    **_in_module(f"{_HEAD}.base_head", "Head"),
    **_in_module(f"{_HEAD}.binary_class_head", "BinaryClassHead"),
    **_in_module(f"{_HEAD}.multi_class_head", "MultiClassHead"),
    **_in_module(f"{_HEAD}.multi_head", "MultiHead"),
    **_in_module(f"{_HEAD}.multi_label_head", "MultiLabelHead"),
    **_in_module(
        f"{_HEAD}.regression_head", "LogisticRegressionHead PoissonRegressionHead RegressionHead"
    ),
}
_CANNED_EXPERIMENTAL = {
    "KMeans": f"{_CANNED}.kmeans:KMeansClustering",
    **_in_module(f"{_CANNED}.linear", "LinearSDCA"),
    **_in_module(f"{_CANNED}.rnn", "RNNClassifier RNNEstimator"),
}


def _canned_classes(suffix: str) -> dict[str, str]:
    return {
        name: f"{module}:{name}{suffix}"
        for module, names in _CANNED_CLASSES.items()
        for name in names
    }


# The canned estimators and heads of TensorFlow 2, which `trainer` has too.
CANNED: Mapping[str, str] = {**_canned_classes("V2"), **_HEADS, **_CANNED_EXPERIMENTAL}

V2: Namespaces = {
    "": {**_ROOT, **_HEADS, **_canned_classes("V2")},
    "export": _EXPORT,
    "experimental": {**_EXPERIMENTAL, **_CANNED_EXPERIMENTAL},
}

V1: Namespaces = {
    **V2,
    "": {**_ROOT, **_HEADS, **_canned_classes("")},
    "inputs": _in_module("trainer.inputs", "numpy_input_fn pandas_input_fn"),
    "tpu": _in_module(
        "trainer", "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec"
    ),
    # Supply the classes for the optimization parameters of TPU embedding tables in
    # tf.estimator.tpu.experimental as well as in tf.tpu.experimental: programs use both modules.
    "tpu.experimental": {
        **_in_module("trainer.embedding.config", "EmbeddingConfigSpec"),
        **_in_module(
            "trainer.embedding.optimization_parameters",
            "AdagradParameters AdamParameters FtrlParameters StochasticGradientDescentParameters",
        ),
    },
}

BOOSTED_TREES = (
    "TensorFlow, 2.15 as well as today's, has the ops of boosted trees and no kernel for them, so "
    "nothing can run them. Train the trees with the package ydf."
)
SAVED_MODEL_ESTIMATOR = "Use warm_start_from with the variables of the SavedModel."

# Names of tf.estimator that tpuserve does not supply: dotted path below tf.estimator → a sentence
# that says what to use instead.
UNSUPPORTED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "BoostedTreesClassifier",
            "BoostedTreesEstimator",
            "BoostedTreesRegressor",
            "experimental.boosted_trees_classifier_train_in_memory",
            "experimental.boosted_trees_regressor_train_in_memory",
        ),
        BOOSTED_TREES,
    ),
    "experimental.SavedModelEstimator": SAVED_MODEL_ESTIMATOR,
}
