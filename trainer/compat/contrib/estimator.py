"""tf.contrib.estimator: hooks, add_metrics and logit functions.

All of them are defined in the package `trainer`.
"""

from trainer.compat import contrib_missing_names
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
    "InMemoryEvaluatorHook",
    "add_metrics",
    "build_raw_supervised_input_receiver_fn",
    "build_supervised_input_receiver_fn_from_input_fn",
    "call_logit_fn",
    "dnn_logit_fn_builder",
    "linear_logit_fn_builder",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.estimator", __all__)
