from tpuserve.export import (
    BatchConfig as BatchConfig,
)
from tpuserve.export import (
    WarmUp as WarmUp,
)
from tpuserve.export import (
    call_computation as call_computation,
)
from tpuserve.export import (
    inference_on_tpu as inference_on_tpu,
)
from tpuserve.export import (
    model_fn_inference_on_tpu as model_fn_inference_on_tpu,
)
from trainer import (
    experimental as experimental,
)
from trainer import (
    export as export,
)
from trainer import (
    inputs as inputs,
)
from trainer.checkpoints.warm_start import VocabInfo as VocabInfo
from trainer.checkpoints.warm_start import WarmStartSettings as WarmStartSettings
from trainer.compat.canned import BaselineClassifier as BaselineClassifier
from trainer.compat.canned import BaselineEstimator as BaselineEstimator
from trainer.compat.canned import BaselineRegressor as BaselineRegressor
from trainer.compat.canned import BinaryClassHead as BinaryClassHead
from trainer.compat.canned import DNNClassifier as DNNClassifier
from trainer.compat.canned import DNNEstimator as DNNEstimator
from trainer.compat.canned import DNNLinearCombinedClassifier as DNNLinearCombinedClassifier
from trainer.compat.canned import DNNLinearCombinedEstimator as DNNLinearCombinedEstimator
from trainer.compat.canned import DNNLinearCombinedRegressor as DNNLinearCombinedRegressor
from trainer.compat.canned import DNNRegressor as DNNRegressor
from trainer.compat.canned import Head as Head
from trainer.compat.canned import KMeans as KMeans
from trainer.compat.canned import LinearClassifier as LinearClassifier
from trainer.compat.canned import LinearEstimator as LinearEstimator
from trainer.compat.canned import LinearRegressor as LinearRegressor
from trainer.compat.canned import LinearSDCA as LinearSDCA
from trainer.compat.canned import LogisticRegressionHead as LogisticRegressionHead
from trainer.compat.canned import MultiClassHead as MultiClassHead
from trainer.compat.canned import MultiHead as MultiHead
from trainer.compat.canned import MultiLabelHead as MultiLabelHead
from trainer.compat.canned import PoissonRegressionHead as PoissonRegressionHead
from trainer.compat.canned import RegressionHead as RegressionHead
from trainer.compat.canned import RNNClassifier as RNNClassifier
from trainer.compat.canned import RNNEstimator as RNNEstimator
from trainer.config.run_config import InputPipelineConfig as InputPipelineConfig
from trainer.config.run_config import RunConfig as RunConfig
from trainer.config.run_config import TPUConfig as TPUConfig
from trainer.conversion import to_tpu_estimator as to_tpu_estimator
from trainer.distribution.cross_shard import CrossShardOptimizer as CrossShardOptimizer
from trainer.distribution.cross_shard import cross_replica_sum as cross_replica_sum
from trainer.distribution.tpu_context import TPUContext as TPUContext
from trainer.embedding.config import EmbeddingConfigSpec as EmbeddingConfigSpec
from trainer.embedding.config import FeatureConfig as FeatureConfig
from trainer.embedding.config import TableConfig as TableConfig
from trainer.embedding.optimization_parameters import AdagradParameters as AdagradParameters
from trainer.embedding.optimization_parameters import AdamParameters as AdamParameters
from trainer.embedding.optimization_parameters import FtrlParameters as FtrlParameters
from trainer.embedding.optimization_parameters import (
    StochasticGradientDescentParameters as StochasticGradientDescentParameters,
)
from trainer.embedding.private_parameters import (
    AdagradMomentumParameters as AdagradMomentumParameters,
)
from trainer.embedding.private_parameters import MomentumParameters as MomentumParameters
from trainer.embedding.private_parameters import (
    ProximalAdagradParameters as ProximalAdagradParameters,
)
from trainer.embedding.private_parameters import ProximalYogiParameters as ProximalYogiParameters
from trainer.embedding.private_parameters import RMSPropParameters as RMSPropParameters
from trainer.estimator.add_metrics import add_metrics as add_metrics
from trainer.estimator.early_stopping import make_early_stopping_hook as make_early_stopping_hook
from trainer.estimator.early_stopping import stop_if_higher_hook as stop_if_higher_hook
from trainer.estimator.early_stopping import stop_if_lower_hook as stop_if_lower_hook
from trainer.estimator.early_stopping import stop_if_no_decrease_hook as stop_if_no_decrease_hook
from trainer.estimator.early_stopping import stop_if_no_increase_hook as stop_if_no_increase_hook
from trainer.estimator.estimator import Estimator as Estimator
from trainer.estimator.in_memory_evaluator import InMemoryEvaluatorHook as InMemoryEvaluatorHook
from trainer.estimator.plain_export import (
    export_estimator_savedmodel as export_estimator_savedmodel,
)
from trainer.estimator.tpu_estimator import TPUEstimator as TPUEstimator
from trainer.export import (
    ClassificationOutput as ClassificationOutput,
)
from trainer.export import (
    EvalOutput as EvalOutput,
)
from trainer.export import (
    ExportOutput as ExportOutput,
)
from trainer.export import (
    PredictOutput as PredictOutput,
)
from trainer.export import (
    RegressionOutput as RegressionOutput,
)
from trainer.exporting.exporters.base import Exporter as Exporter
from trainer.exporting.exporters.best import BestExporter as BestExporter
from trainer.exporting.exporters.final import FinalExporter as FinalExporter
from trainer.exporting.exporters.latest import LatestExporter as LatestExporter
from trainer.exporting.input_receivers import ServingInputReceiver as ServingInputReceiver
from trainer.exporting.input_receivers import SupervisedInputReceiver as SupervisedInputReceiver
from trainer.exporting.input_receivers import (
    TensorServingInputReceiver as TensorServingInputReceiver,
)
from trainer.exporting.input_receivers import (
    build_parsing_serving_input_receiver_fn as build_parsing_serving_input_receiver_fn,
)
from trainer.exporting.input_receivers import (
    build_raw_serving_input_receiver_fn as build_raw_serving_input_receiver_fn,
)
from trainer.exporting.input_receivers import (
    build_raw_supervised_input_receiver_fn as build_raw_supervised_input_receiver_fn,
)
from trainer.exporting.parse_specs import (
    classifier_parse_example_spec as classifier_parse_example_spec,
)
from trainer.exporting.parse_specs import (
    regressor_parse_example_spec as regressor_parse_example_spec,
)
from trainer.exporting.strategies import ExportSavedModelApiVersion as ExportSavedModelApiVersion
from trainer.hooks.checkpoint_hooks import (
    make_stop_at_checkpoint_step_hook as make_stop_at_checkpoint_step_hook,
)
from trainer.hooks.session_hooks import CheckpointSaverHook as CheckpointSaverHook
from trainer.hooks.session_hooks import CheckpointSaverListener as CheckpointSaverListener
from trainer.hooks.session_hooks import FeedFnHook as FeedFnHook
from trainer.hooks.session_hooks import FinalOpsHook as FinalOpsHook
from trainer.hooks.session_hooks import GlobalStepWaiterHook as GlobalStepWaiterHook
from trainer.hooks.session_hooks import LoggingTensorHook as LoggingTensorHook
from trainer.hooks.session_hooks import NanLossDuringTrainingError as NanLossDuringTrainingError
from trainer.hooks.session_hooks import NanTensorHook as NanTensorHook
from trainer.hooks.session_hooks import ProfilerHook as ProfilerHook
from trainer.hooks.session_hooks import SecondOrStepTimer as SecondOrStepTimer
from trainer.hooks.session_hooks import SessionRunArgs as SessionRunArgs
from trainer.hooks.session_hooks import SessionRunContext as SessionRunContext
from trainer.hooks.session_hooks import SessionRunHook as SessionRunHook
from trainer.hooks.session_hooks import SessionRunValues as SessionRunValues
from trainer.hooks.session_hooks import StepCounterHook as StepCounterHook
from trainer.hooks.session_hooks import StopAtStepHook as StopAtStepHook
from trainer.hooks.session_hooks import SummarySaverHook as SummarySaverHook
from trainer.inputs import (
    numpy_input_fn as numpy_input_fn,
)
from trainer.inputs import (
    pandas_input_fn as pandas_input_fn,
)
from trainer.keras import model_to_tpu_estimator as model_to_tpu_estimator
from trainer.keras import to_keras as to_keras
from trainer.model.logit_fns import call_logit_fn as call_logit_fn
from trainer.model.logit_fns import dnn_logit_fn_builder as dnn_logit_fn_builder
from trainer.model.logit_fns import linear_logit_fn_builder as linear_logit_fn_builder
from trainer.model.spec import EstimatorSpec as EstimatorSpec
from trainer.model.spec import ModeKeys as ModeKeys
from trainer.model.spec import TPUEstimatorSpec as TPUEstimatorSpec
from trainer.train_eval.api import EvalSpec as EvalSpec
from trainer.train_eval.api import TrainSpec as TrainSpec
from trainer.train_eval.api import train_and_evaluate as train_and_evaluate

__all__: list[str]
