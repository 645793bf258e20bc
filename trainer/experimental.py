"""Exports functions and classes under the names that they have in tf.estimator.experimental."""

from trainer.estimator.early_stopping import (
    make_early_stopping_hook,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from trainer.estimator.in_memory_evaluator import InMemoryEvaluatorHook
from trainer.exporting.input_receivers import build_raw_supervised_input_receiver_fn
from trainer.hooks.checkpoint_hooks import make_stop_at_checkpoint_step_hook
from trainer.model.logit_fns import call_logit_fn, dnn_logit_fn_builder, linear_logit_fn_builder

__all__ = [
    "InMemoryEvaluatorHook",
    "build_raw_supervised_input_receiver_fn",
    "call_logit_fn",
    "dnn_logit_fn_builder",
    "linear_logit_fn_builder",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]
