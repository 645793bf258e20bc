"""The names of tf.estimator, and what replaces those that are not supplied. No TensorFlow here.

Each namespace maps its names to their homes, "module:attribute". What tf.estimator had and is
neither here nor in UNSUPPORTED was never public.
"""

from collections.abc import Mapping

Namespaces = Mapping[str, Mapping[str, str]]


def _at(module: str, names: str) -> dict[str, str]:
    return {each: f"{module}:{each}" for each in names.split()}


_ROOT = _at(
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

_EXPORT = _at(
    "trainer.export",
    """
    ClassificationOutput EvalOutput ExportOutput PredictOutput RegressionOutput
    ServingInputReceiver SupervisedInputReceiver TensorServingInputReceiver
    build_parsing_serving_input_receiver_fn build_raw_serving_input_receiver_fn
    """,
)

_EXPERIMENTAL = _at(
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
    "inputs": _at("trainer.inputs", "numpy_input_fn pandas_input_fn"),
    "tpu": _at("trainer", "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec"),
    # The classes were tf.tpu.experimental's; programs look for them beside EmbeddingConfigSpec.
    "tpu.experimental": _at(
        "trainer.compat.embedding_parameters",
        "AdagradParameters AdamParameters FtrlParameters StochasticGradientDescentParameters",
    ),
}

_KERAS = (
    "Write its model as a model_fn, or build it in Keras and give it to "
    "trainer.model_to_tpu_estimator"
)
_DNN = f"{_KERAS}; tf.estimator.experimental.dnn_logit_fn_builder gives its layers."
_LINEAR = f"{_KERAS}; tf.estimator.experimental.linear_logit_fn_builder gives its logits."
_BOTH = (
    f"{_KERAS}; the sum of the two logit_fn builders of tf.estimator.experimental is its logits."
)
_HEAD = "In model_fn, write its loss, predictions and metrics with tf.losses and tf.metrics."

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
        _BOTH,
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
        f"{_KERAS}; tf.keras.layers.LSTM and GRU are its layers.",
    ),
    "tpu.experimental.EmbeddingConfigSpec": (
        "Tables are not kept by the TPU's embedding engine: build them in model_fn, with "
        "tf.feature_column.input_layer or tf.nn.embedding_lookup, and leave embedding_config_spec "
        "out."
    ),
}
