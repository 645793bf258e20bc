import importlib
from pathlib import Path

import pytest

import trainer

_NAMES = """
    BestExporter CheckpointSaverHook CheckpointSaverListener Estimator EstimatorSpec EvalSpec
    Exporter FeedFnHook FinalExporter FinalOpsHook GlobalStepWaiterHook LatestExporter
    LoggingTensorHook ModeKeys NanLossDuringTrainingError NanTensorHook ProfilerHook RunConfig
    SecondOrStepTimer SessionRunArgs SessionRunContext SessionRunHook SessionRunValues
    StepCounterHook StopAtStepHook SummarySaverHook TrainSpec VocabInfo WarmStartSettings
    add_metrics classifier_parse_example_spec regressor_parse_example_spec train_and_evaluate
    InputPipelineConfig TPUConfig TPUEstimator TPUEstimatorSpec TPUContext
    ExportSavedModelApiVersion CrossShardOptimizer cross_replica_sum
"""
_OF_NAMESPACES = {
    "export": """
        ClassificationOutput EvalOutput ExportOutput PredictOutput RegressionOutput
        ServingInputReceiver TensorServingInputReceiver build_parsing_serving_input_receiver_fn
        build_raw_serving_input_receiver_fn
    """,
    "experimental": """
        InMemoryEvaluatorHook build_raw_supervised_input_receiver_fn call_logit_fn
        dnn_logit_fn_builder linear_logit_fn_builder make_early_stopping_hook
        make_stop_at_checkpoint_step_hook stop_if_higher_hook stop_if_lower_hook
        stop_if_no_decrease_hook stop_if_no_increase_hook
    """,
    "inputs": "numpy_input_fn pandas_input_fn",
}


def test_every_public_name_of_the_original_is_there() -> None:
    for name in _NAMES.split():
        assert callable(getattr(trainer, name)), name


@pytest.mark.parametrize("namespace", _OF_NAMESPACES)
def test_names_of_a_namespace_are_there_and_in_trainer_itself(namespace: str) -> None:
    module = getattr(trainer, namespace)
    assert module is importlib.import_module(f"trainer.{namespace}")
    names = _OF_NAMESPACES[namespace].split()
    assert set(names) <= set(module.__all__)
    for name in names:
        assert getattr(module, name) is getattr(trainer, name)


def test_all_names_resolve_and_others_are_attribute_errors() -> None:
    assert [name for name in trainer.__all__ if not hasattr(trainer, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'Estimater'"):
        trainer.Estimater  # type: ignore[attr-defined]  # noqa: B018


def test_no_module_of_the_package_has_the_name_of_a_function_or_class() -> None:
    # Importing such a module would replace the attribute `trainer.NAME` by the module.
    package = Path(trainer.__file__).parent
    modules = {path.stem for path in package.iterdir()} & set(trainer.__all__)
    assert modules == set(_OF_NAMESPACES)
