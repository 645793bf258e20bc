"""Trains a model: builds the graph and the hooks, and runs the training loop until its end."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.backends.base import ExecutionBackend, TrainGraph
from trainer.checkpoints import checkpoints
from trainer.config.run_config import COMPILE_AUTO, RunConfig
from trainer.execution import (
    graceful_shutdown,
    host_agreement,
    protobuf_compat,
    run_graph,
    train_loop,
)
from trainer.execution.train_loop import UNBOUNDED, IterationPlan
from trainer.hooks import event_files, progress
from trainer.hooks.profiling import ProfileStepsHook
from trainer.hooks.step_trial import MIN_TRIAL_RUNS, CompiledStepHook
from trainer.hooks.training_hooks import (
    NanLossHook,
    NumberLossSaverHook,
    StepLimitHook,
    StepRangeHook,
    StopForEvaluationHook,
)
from trainer.hosts.group import current_group
from trainer.model.model_program import ModelProgram
from trainer.model.spec import ModeKeys
from trainer.tensorflow_internals import added_saving_listeners, find_private_attribute

logger = logging.getLogger("tensorflow.trainer")


def train(
    program: ModelProgram,
    input_fn: Callable[..., Any],
    backend: ExecutionBackend,
    *,
    hooks: Sequence[Any] = (),
    steps: int | None = None,
    max_steps: int | None = None,
    saving_listeners: Sequence[Any] = (),
) -> None:
    """Train until a given step, or until the input ends.

    Training starts from the newest checkpoint of the program's model_dir, if there is one.

    Args:
      hooks: the user's SessionRunHooks. They are called before the training_hooks of model_fn, and
        after the hooks that save checkpoints and summaries.
      max_steps: the global step at which to stop; None for no limit.

    Raises:
      SystemExit: with code 0 after a SIGTERM, when the current `session.run` has made its steps,
        and a checkpoint of the last step is saved.
    """
    config = program.config
    hosts = current_group()
    newest = host_agreement.find_same_checkpoint(
        lambda: tf.train.latest_checkpoint(program.model_dir), program.model_dir
    )
    if (
        newest is not None
        and max_steps is not None
        and checkpoints.read_global_step(newest) >= max_steps
    ):
        logger.info("nothing to train: step %d is reached, in %s", max_steps, newest)
        return
    must_repeat = run_graph.must_repeat_numbers()
    with (
        graceful_shutdown.sigterm_watcher() as shutdown_hook,
        backend.new_graph(config) as global_step,
    ):
        plan = host_agreement.agree_on_plan(program.iteration_plan())
        compile_step = config.compile_step
        if compile_step == COMPILE_AUTO and (
            must_repeat or _is_short(plan, newest, steps, max_steps)
        ):
            compile_step = False
        train_graph = backend.build_train_graph(
            program, input_fn, global_step, newest, plan, compile_step, hooks
        )
        scaffold = checkpoints.scaffold_with_saver(train_graph.spec.scaffold, config)
        start = StepRangeHook(steps, max_steps)
        reporter, progress_hook = _make_progress_hook(program, train_graph.loop, start)
        profile_hooks = _profile_hooks(program, train_graph.loop, start)
        all_hooks = [
            *_training_hooks(
                program, train_graph, plan, scaffold, start, progress_hook, hooks, saving_listeners
            ),
            *profile_hooks,
            shutdown_hook,
            *host_agreement.stop_together("training", shutdown_hook),
        ]
        for hook in all_hooks:
            _set_steps_per_run(hook, train_graph.loop.max_iterations)
        with contextlib.ExitStack() as exit_stack:
            # Close the progress bar and the profiler at the end, even if training fails.
            for closable in (reporter, *profile_hooks):
                exit_stack.callback(closable.close)
            exit_stack.enter_context(_added_listeners(hooks, train_graph.spec, saving_listeners))
            exit_stack.enter_context(backend.run_scope())
            session = exit_stack.enter_context(
                backend.create_session(
                    config,
                    scaffold,
                    all_hooks,
                    checkpoint_dir=program.model_dir,
                    # A worker of a cluster with parameter servers waits until the chief has
                    # initialised the variables.
                    is_chief=config.is_chief or hosts.size > 1 or not config.task.jobs,
                )
            )
            if start.is_over:
                logger.info("nothing to train: step %d of %d is reached", start.step, max_steps)
            _run_loops(session, train_graph.loop, start, all_hooks)
        hosts.wait_for_all("the end of training")
    if progress_hook.loss is not None:
        progress.estimator_logger.info("Loss for final step: %s.", progress_hook.loss)


def _run_loops(
    session: Any, loop: train_loop.TrainLoop, start: StepRangeHook, hooks: Sequence[Any]
) -> None:
    compiled_step_hooks = [hook for hook in hooks if isinstance(hook, CompiledStepHook)]
    while not (session.should_stop() or start.is_over):
        try:
            session.run(loop.train_op)
        except graceful_shutdown.GracefulExit:
            # A hook has raised this, such as one that evaluates and was interrupted by SIGTERM. End
            # the session without an error, so that the hooks save a checkpoint.
            return
        except tf.errors.OpError as error:
            if not any(hook.goes_on_after(error) for hook in compiled_step_hooks):
                raise


def _make_progress_hook(
    program: ModelProgram, loop: train_loop.TrainLoop, start: StepRangeHook
) -> tuple[Any, progress.ProgressHook]:
    """Make the reporter of the training's progress, and the hook that passes steps to it."""
    config = program.config
    batch_size = getattr(program, "batch_sizes", {}).get(ModeKeys.TRAIN)
    reporter = progress.make_step_reporter(
        "train", config.log_step_count_steps, batch_size=batch_size
    )
    hook = progress.ProgressHook(
        loop,
        start,
        reporter,
        program.model_dir,
        config.log_step_count_steps if config.is_chief else None,
        batch_size=batch_size,
    )
    return reporter, hook


def _training_hooks(
    program: ModelProgram,
    train_graph: TrainGraph,
    plan: IterationPlan,
    scaffold: Any,
    start: StepRangeHook,
    progress_hook: Any,
    hooks: Sequence[Any],
    saving_listeners: Sequence[Any],
) -> list[Any]:
    """Return the hooks of a training run, in the order in which the session calls them."""
    config, loop = program.config, train_graph.loop
    model_and_user_hooks = [*hooks, *(train_graph.spec.training_hooks or ())]
    chief_hooks = train_graph.spec.training_chief_hooks or ()
    protobuf_compat.patch_graph_io()
    checkpoint_hooks = (
        []
        if _saver_hooks(hooks, train_graph.spec)
        else _checkpoint_hooks(program, loop, scaffold, saving_listeners)
    )
    all_hooks = [
        start,
        *_compiled_step_hooks(config, loop, start),
        *train_graph.hooks,
        StepLimitHook(
            loop,
            start,
            plan,
            others=[*model_and_user_hooks, *(chief_hooks if config.is_chief else ())],
            # Pass the number of workers only if they share a global step, as they do with parameter
            # servers.
            workers=config.num_worker_replicas if config.num_ps_replicas else 1,
        ),
        progress_hook,
    ]
    if config.is_chief:
        all_hooks += [
            *checkpoint_hooks,
            *chief_hooks,
            *_summary_hooks(program, loop, scaffold, start),
        ]
    # Place a StopForEvaluationHook after the hooks of model_fn, although it is among the user's
    # hooks. These see a step whose loss is NaN, as in tf.estimator.
    stop_hooks = [hook for hook in hooks if isinstance(hook, StopForEvaluationHook)]
    return [
        *all_hooks,
        *(hook for hook in hooks if hook not in stop_hooks),
        NanLossHook(loop.loss),
        *(train_graph.spec.training_hooks or ()),
        *stop_hooks,
    ]


def _summary_hooks(
    program: ModelProgram,
    loop: train_loop.TrainLoop,
    scaffold: Any,
    start: StepRangeHook,
) -> list[Any]:
    every_n_steps = program.config.save_summary_steps
    if not every_n_steps:
        return []
    return [event_files.SummaryHook(loop, scaffold, program.model_dir, start, every_n_steps)]


def _is_short(
    plan: IterationPlan, checkpoint: str | None, steps: int | None, max_steps: int | None
) -> bool:
    """Return whether a trial of XLA would cost the training more time than it can save."""
    if max_steps is not None:
        done = 0 if checkpoint is None else checkpoints.read_global_step(checkpoint)
        steps = max_steps - done
    return (
        steps is not None
        and plan.max_iterations != UNBOUNDED
        and steps < MIN_TRIAL_RUNS * plan.max_iterations
    )


def _compiled_step_hooks(
    config: RunConfig, loop: train_loop.TrainLoop, start: StepRangeHook
) -> list[Any]:
    if loop.compiled is None:
        return []
    return [CompiledStepHook(loop, start, is_forced=config.compile_step is True)]


def _profile_hooks(
    program: ModelProgram, loop: train_loop.TrainLoop, start: StepRangeHook
) -> list[ProfileStepsHook]:
    steps = program.config.profile_steps
    if steps is None or not program.config.is_chief:
        return []
    return [ProfileStepsHook(loop, program.model_dir, start, steps)]


def _saver_hooks(hooks: Sequence[Any], spec: Any) -> list[Any]:
    all_hooks = [*hooks, *(spec.training_hooks or ()), *(spec.training_chief_hooks or ())]
    return [hook for hook in all_hooks if isinstance(hook, tf.compat.v1.train.CheckpointSaverHook)]


def _added_listeners(
    hooks: Sequence[Any], spec: Any, saving_listeners: Sequence[Any]
) -> AbstractContextManager[None]:
    saver_hooks = _saver_hooks(hooks, spec)
    if not saver_hooks:
        return contextlib.nullcontext()
    return added_saving_listeners(saver_hooks[0], saving_listeners)


def _checkpoint_hooks(
    program: ModelProgram,
    loop: train_loop.TrainLoop,
    scaffold: Any,
    saving_listeners: Sequence[Any],
) -> list[Any]:
    config = program.config
    if not (config.save_checkpoints_steps or config.save_checkpoints_secs):
        if saving_listeners:
            raise InvalidSetting(
                "saving_listeners need checkpoints, and the config saves none: there is no "
                "CheckpointSaverHook. Set save_checkpoints_steps "
                "or save_checkpoints_secs."
            )
        return []
    return [
        NumberLossSaverHook(
            loop.loss,
            program.model_dir,
            save_steps=config.save_checkpoints_steps,
            save_secs=config.save_checkpoints_secs,
            scaffold=scaffold,
            listeners=list(saving_listeners),
            save_graph_def=config.checkpoint_save_graph_def,
        )
    ]


def _set_steps_per_run(hook: Any, steps_per_run: int) -> None:
    # Pass the number of steps of one `session.run` to TensorFlow's hooks that count steps. By
    # default these hooks expect one step per `session.run`.
    set_steps_per_run = find_private_attribute(hook, "_set_steps_per_run")
    if set_steps_per_run is not None:
        set_steps_per_run(steps_per_run)
