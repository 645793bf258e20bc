"""tf.contrib.estimator: canned estimators, heads, hooks, and functions that extend an estimator."""

from trainer.compat import contrib_missing_names
from trainer.compat.contrib.estimator.extenders import (
    TowerOptimizer,
    clip_gradients_by_norm,
    export_all_saved_models,
    export_saved_model_for_mode,
    forward_features,
    replicate_model_fn,
)
from trainer.compat.contrib.estimator.heads import (
    binary_classification_head,
    logistic_regression_head,
    multi_class_head,
    multi_head,
    multi_label_head,
    poisson_regression_head,
    regression_head,
)
from trainer.compat.contrib.estimator.recurrent import RNNClassifier, RNNEstimator
from trainer.compat.imports.canned_internals import dnn, dnn_linear_combined, linear
from trainer.estimator.add_metrics import add_metrics
from trainer.estimator.early_stopping import (
    make_early_stopping_hook,
    read_eval_metrics,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from trainer.estimator.in_memory_evaluator import InMemoryEvaluatorHook
from trainer.exporting.input_receivers import (
    build_raw_supervised_input_receiver_fn,
    build_supervised_input_receiver_fn_from_input_fn,
)
from trainer.hooks.checkpoint_hooks import make_stop_at_checkpoint_step_hook
from trainer.model.logit_fns import call_logit_fn, dnn_logit_fn_builder, linear_logit_fn_builder

__all__ = [
    "DNNEstimator",
    "DNNLinearCombinedEstimator",
    "InMemoryEvaluatorHook",
    "LinearEstimator",
    "RNNClassifier",
    "RNNEstimator",
    "TowerOptimizer",
    "add_metrics",
    "binary_classification_head",
    "build_raw_supervised_input_receiver_fn",
    "build_supervised_input_receiver_fn_from_input_fn",
    "call_logit_fn",
    "clip_gradients_by_norm",
    "dnn_logit_fn_builder",
    "export_all_saved_models",
    "export_saved_model_for_mode",
    "forward_features",
    "linear_logit_fn_builder",
    "logistic_regression_head",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "multi_class_head",
    "multi_head",
    "multi_label_head",
    "poisson_regression_head",
    "read_eval_metrics",
    "regression_head",
    "replicate_model_fn",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]

DNNEstimator = dnn.DNNEstimator
DNNLinearCombinedEstimator = dnn_linear_combined.DNNLinearCombinedEstimator
LinearEstimator = linear.LinearEstimator

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.estimator", __all__)
