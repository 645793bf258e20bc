"""Training, from the input to the last checkpoint."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer import checkpoints, graph, input_pipeline, loop, progress, session, summaries
from trainer.hooks import StepLimitHook, host_call_hooks
from trainer.program import Program
from trainer.spec import ModeKeys

logger = logging.getLogger("tensorflow.trainer")


def train(
    program: Program,
    input_fn: Callable[..., Any],
    *,
    hooks: Sequence[Any] = (),
    steps: int | None = None,
    max_steps: int | None = None,
    saving_listeners: Sequence[Any] = (),
) -> None:
    """Trains until the step asked for, or until the input ends.

    Starts from the newest checkpoint of the program's model_dir, if there is one, and leaves one
    of the last step, unless the config switches checkpoints off.

    Args:
      program: what to train.
      input_fn: gives batches of (features, labels).
      hooks: the caller's; they come first.
      steps: how many steps to make from here.
      max_steps: the global step to stop at; nothing is done where it is reached already.
      saving_listeners: told about each checkpoint.
    """
    config = program.config
    newest = tf.train.latest_checkpoint(program.model_dir)
    first_step = 0 if newest is None else checkpoints.step_of(newest)
    last_step = first_step + steps if steps is not None else max_steps
    if last_step is not None and first_step >= last_step:
        logger.info("nothing to train: step %d of %d is reached", first_step, last_step)
        return
    with graph.fresh(config) as global_step:
        inputs = input_pipeline.build(program.call_input_fn(input_fn, ModeKeys.TRAIN))
        spec = program.call_model_fn(inputs.features, inputs.labels, ModeKeys.TRAIN)
        if newest is not None:
            checkpoints.check_shapes(newest)
        # Built before the loop is, so that what it reads waits for the steps of the loop.
        host_call = host_call_hooks(spec)
        summaries.add_loss(spec.loss)
        steps_in_one_run = loop.repeat(
            spec.train_op, spec.loss, global_step, config.tpu_config.iterations_per_loop
        )
        scaffold = checkpoints.with_saver(spec.scaffold(), config)
        reporter = progress.reporter(last_step, config.log_step_count_steps)
        all_hooks = [
            *hooks,
            *inputs.hooks,
            StepLimitHook(steps_in_one_run, first_step, last_step),
            tf.compat.v1.train.NanTensorHook(steps_in_one_run.loss),
            progress.ProgressHook(
                steps_in_one_run,
                first_step,
                reporter,
                program.model_dir,
                config.save_summary_steps,
            ),
            *_summary_hooks(program, steps_in_one_run, scaffold, first_step),
            *host_call,
            *(spec.training_hooks or ()),
            *_checkpoint_hooks(program, scaffold, saving_listeners),
        ]
        for hook in all_hooks:
            _tell_steps_per_run(hook, steps_in_one_run.max_iterations)
        with (
            # A failed run must not leave a bar behind that goes on drawing itself.
            contextlib.closing(reporter),
            session.monitored(
                config, scaffold, all_hooks, checkpoint_dir=program.model_dir
            ) as training,
        ):
            while not training.should_stop():
                training.run(steps_in_one_run.train_op)


def _summary_hooks(
    program: Program, steps_in_one_run: loop.Loop, scaffold: Any, first_step: int
) -> list[Any]:
    every_n_steps = program.config.save_summary_steps
    if not every_n_steps:
        return []
    return [
        summaries.SummaryHook(
            steps_in_one_run, scaffold, program.model_dir, first_step, every_n_steps
        )
    ]


def _checkpoint_hooks(
    program: Program, scaffold: Any, saving_listeners: Sequence[Any]
) -> list[Any]:
    config = program.config
    if not (config.save_checkpoints_steps or config.save_checkpoints_secs):
        if saving_listeners:
            raise InvalidSetting(
                "saving_listeners are given, and the config writes no checkpoints that they "
                "could be told about. Set save_checkpoints_steps or save_checkpoints_secs."
            )
        return []
    return [
        tf.compat.v1.train.CheckpointSaverHook(
            program.model_dir,
            save_steps=config.save_checkpoints_steps,
            save_secs=config.save_checkpoints_secs,
            scaffold=scaffold,
            listeners=list(saving_listeners),
            save_graph_def=checkpoints.can_save_graph(),
        )
    ]


def _tell_steps_per_run(hook: Any, steps_per_run: int) -> None:
    # TensorFlow's hooks that count steps offer this, so that they fire at the right loop.
    tell = getattr(hook, "_set_steps_per_run", None)
    if tell is not None:
        tell(steps_per_run)
