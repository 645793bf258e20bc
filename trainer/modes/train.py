"""Training, from the input to the last checkpoint."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.backends import monitored_session as sessions
from trainer.backends.base import ExecutionBackend
from trainer.checkpoints import checkpoints
from trainer.execution import graceful_shutdown, protobuf_compat, train_loop
from trainer.hooks import progress, summaries
from trainer.hooks.profiling import ProfileStepsHook
from trainer.hooks.training_hooks import StepLimitHook, StepRangeHook
from trainer.model.model_program import ModelProgram
from trainer.model.spec import ModeKeys
from trainer.tensorflow_internals import add_saving_listeners

logger = logging.getLogger("tensorflow.trainer")


def train(
    program: ModelProgram,
    input_fn: Callable[..., Any],
    place: ExecutionBackend,
    *,
    hooks: Sequence[Any] = (),
    steps: int | None = None,
    max_steps: int | None = None,
    saving_listeners: Sequence[Any] = (),
) -> None:
    """Trains until the step asked for, or until the input ends.

    Starts from the newest checkpoint of the program's model_dir, if there is one, and leaves one
    of the last step, unless the config switches checkpoints off. In a cluster, a worker starts
    from the variables that its chief has initialised, and leaves checkpoints, summaries and
    profiles to the chief.

    Args:
      program: what to train.
      input_fn: gives batches of (features, labels).
      place: where it runs.
      hooks: the caller's; they come before the model's, and after what saves and summarises, so
        that they find the checkpoint of the step they are called for.
      steps: how many steps to make from here.
      max_steps: the global step to stop at; nothing is done where it is reached already. Workers
        that share it may go beyond it, by a loop that began before another's was over.
      saving_listeners: told about each checkpoint.

    Raises:
      SystemExit: with 0, at a SIGTERM, after the running loop and its checkpoint.
    """
    config = program.config
    newest = tf.train.latest_checkpoint(program.model_dir)
    if (
        newest is not None
        and max_steps is not None
        and checkpoints.read_global_step(newest) >= max_steps
    ):
        logger.info("nothing to train: step %d is reached, in %s", max_steps, newest)
        return
    with graceful_shutdown.sigterm_watcher() as ending, place.graph(config) as global_step:
        plan = program.iteration_plan()
        training = place.training(program, input_fn, global_step, newest, plan)
        scaffold = checkpoints.scaffold_with_saver(training.spec.scaffold, config)
        start = StepRangeHook(steps, max_steps)
        batch_size = getattr(program, "batch_sizes", {}).get(ModeKeys.TRAIN)
        reporter = progress.make_step_reporter(
            "train", config.log_step_count_steps, batch_size=batch_size
        )
        told = progress.ProgressHook(
            training.loop,
            start,
            reporter,
            program.model_dir,
            config.save_summary_steps if config.is_chief else None,
            batch_size=batch_size,
        )
        own = [*hooks, *(training.spec.training_hooks or ())]
        profiles = _profile_hooks(program, training.loop, start)
        counting = [
            start,
            *training.hooks,
            StepLimitHook(
                training.loop,
                start,
                plan,
                others=own,
                # Without parameter servers there is nothing that workers share.
                workers=config.num_worker_replicas if config.num_ps_replicas else 1,
            ),
            tf.compat.v1.train.NanTensorHook(training.loop.loss),
            told,
        ]
        chief = training.spec.training_chief_hooks or ()
        saving = _checkpoint_hooks(program, scaffold, [*own, *chief], saving_listeners)
        if config.is_chief:
            # Behind the one that refuses a loss that is no number, which is not to be saved.
            counting += [
                *saving,
                *chief,
                *_summary_hooks(program, training.loop, scaffold, start),
            ]
        all_hooks = [*counting, *own, *profiles, ending]
        for hook in all_hooks:
            _tell_steps_per_run(hook, training.loop.max_iterations)
        with contextlib.ExitStack() as closing:
            # A failed run must not leave a bar that goes on drawing itself, nor a profiler.
            for each in (reporter, *profiles):
                closing.callback(each.close)
            closing.enter_context(place.running())
            session = closing.enter_context(
                sessions.create_monitored_session(
                    config,
                    place,
                    scaffold,
                    all_hooks,
                    checkpoint_dir=program.model_dir,
                    is_chief=config.is_chief,
                )
            )
            if start.is_over:
                logger.info("nothing to train: step %d of %d is reached", start.step, max_steps)
            while not (session.should_stop() or start.is_over):
                session.run(training.loop.train_op)
    if told.loss is not None:
        progress.estimator_logger.info("Loss for final step: %s.", told.loss)


def _summary_hooks(
    program: ModelProgram,
    steps_in_one_run: train_loop.TrainLoop,
    scaffold: Any,
    start: StepRangeHook,
) -> list[Any]:
    every_n_steps = program.config.save_summary_steps
    if not every_n_steps:
        return []
    return [
        summaries.SummaryHook(steps_in_one_run, scaffold, program.model_dir, start, every_n_steps)
    ]


def _profile_hooks(
    program: ModelProgram, steps_in_one_run: train_loop.TrainLoop, start: StepRangeHook
) -> list[ProfileStepsHook]:
    steps = program.config.profile_steps
    if steps is None or not program.config.is_chief:
        return []
    return [ProfileStepsHook(steps_in_one_run, program.model_dir, start, steps)]


def _checkpoint_hooks(
    program: ModelProgram, scaffold: Any, others: Sequence[Any], saving_listeners: Sequence[Any]
) -> list[Any]:
    """The hook that saves checkpoints, unless the program has brought one."""
    config = program.config
    protobuf_compat.patch_graph_io()
    own = [each for each in others if isinstance(each, tf.compat.v1.train.CheckpointSaverHook)]
    if own:
        add_saving_listeners(own[0], saving_listeners)
        return []
    if not (config.save_checkpoints_steps or config.save_checkpoints_secs):
        if saving_listeners:
            raise InvalidSetting(
                "saving_listeners are given, and the config writes no checkpoints that they "
                "could be told about: there is no CheckpointSaverHook. Set save_checkpoints_steps "
                "or save_checkpoints_secs."
            )
        return []
    return [
        tf.compat.v1.train.CheckpointSaverHook(
            program.model_dir,
            save_steps=config.save_checkpoints_steps,
            save_secs=config.save_checkpoints_secs,
            scaffold=scaffold,
            listeners=list(saving_listeners),
            save_graph_def=config.checkpoint_save_graph_def,
        )
    ]


def _tell_steps_per_run(hook: Any, steps_per_run: int) -> None:
    # TensorFlow's hooks that count steps offer this, so that they fire at the right loop.
    tell = getattr(hook, "_set_steps_per_run", None)
    if tell is not None:
        tell(steps_per_run)
