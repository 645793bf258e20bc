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

V2: Namespaces = {"": _ROOT, "export": _EXPORT, "experimental": _EXPERIMENTAL}

V1: Namespaces = {
    **V2,
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

_KERAS = (
    "Write its model as a model_fn, or build it in Keras and give it to "
    "trainer.model_to_tpu_estimator"
)
_DNN = f"{_KERAS}; tf.estimator.experimental.dnn_logit_fn_builder builds its layers."
_LINEAR = f"{_KERAS}; tf.estimator.experimental.linear_logit_fn_builder computes its logits."
_DNN_LINEAR = (
    f"{_KERAS}; its logits are the sum of the logits that dnn_logit_fn_builder and "
    f"linear_logit_fn_builder of tf.estimator.experimental compute."
)
_HEAD = "Compute its loss, predictions and metrics in model_fn, with tf.losses and tf.metrics."

# Names of tf.estimator that tpuserve does not supply: dotted path below tf.estimator → a sentence
# that says what to use instead.
UNSUPPORTED: Mapping[str, str] = {
    **dict.fromkeys(
        ("BaselineClassifier", "BaselineEstimator", "BaselineRegressor"),
        "It learns a constant: write it as a model_fn with one bias variable.",
    ),
    **dict.fromkeys(("DNNClassifier", "DNNEstimator", "DNNRegressor"), _DNN),
    **dict.fromkeys(("LinearClassifier", "LinearEstimator", "LinearRegressor"), _LINEAR),
    **dict.fromkeys(
        (
            "DNNLinearCombinedClassifier",
            "DNNLinearCombinedEstimator",
            "DNNLinearCombinedRegressor",
        ),
        _DNN_LINEAR,
    ),
    **dict.fromkeys(
        ("BoostedTreesClassifier", "BoostedTreesEstimator", "BoostedTreesRegressor"),
        "The package tensorflow_decision_forests trains boosted trees.",
    ),
    **dict.fromkeys(
        (
            "BinaryClassHead",
            "Head",
            "LogisticRegressionHead",
            "MultiClassHead",
            "MultiHead",
            "MultiLabelHead",
            "PoissonRegressionHead",
            "RegressionHead",
        ),
        _HEAD,
    ),
    "experimental.KMeans": "Use sklearn.cluster.KMeans.",
    "experimental.LinearSDCA": "Train the linear model with tf.train.FtrlOptimizer.",
    **dict.fromkeys(
        ("experimental.RNNClassifier", "experimental.RNNEstimator"),
        f"{_KERAS}; build its layers with tf.keras.layers.LSTM or GRU.",
    ),
}
