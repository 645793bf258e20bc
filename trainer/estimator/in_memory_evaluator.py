"""InMemoryEvaluatorHook: evaluates the current variables during training."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve import validation
from tpuserve.errors import InvalidSetting
from trainer.estimator import plain_export
from trainer.execution import graceful_shutdown

# Maps the name of each variable of the training session to its value, a numpy array.
VariableValues = dict[str, Any]


class InMemoryEvaluatorHook(tf.compat.v1.train.SessionRunHook):
    """Evaluates the model before training, at intervals of training steps, and after training.

    The hook copies the variables from the training session, so no checkpoint is needed. Results
    are written to the event files of evaluate(). Training pauses during an evaluation, and the
    graphs of training and evaluation are in memory together, so the hook suits small evaluations.

    Example:
      evaluator = InMemoryEvaluatorHook(estimator, eval_input_fn, every_n_iter=100)
      estimator.train(train_input_fn, hooks=[evaluator], max_steps=1000)
    """

    def __init__(
        self,
        estimator: Any,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Any] | None = None,
        name: str | None = None,
        every_n_iter: int = 100,
    ) -> None:
        """Store the settings; the first evaluation takes place before the first training step.

        Args:
          estimator: the estimator that is trained.
          input_fn: returns batches of (features, labels) to evaluate on.
          steps: the number of batches per evaluation; None evaluates until the input ends.
          hooks: SessionRunHooks of the evaluation.
          name: a name that separates several evaluations of one model.
          every_n_iter: the minimum number of training steps between two evaluations. An evaluation
            takes place at the end of the training loop that reaches this number of steps.

        Raises:
          InvalidType: estimator is not an estimator, or every_n_iter is not a whole number.
          InvalidSetting: every_n_iter is less than 1, training runs on several machines, or the
            evaluation is configured to run on the TPU that training occupies.
        """
        plain_export.check_is_estimator(estimator)
        validation.check_integer("every_n_iter", every_n_iter, least=1)
        config = estimator.config
        if config.num_ps_replicas > 0 or config.num_worker_replicas > 1:
            raise InvalidSetting(
                f"InMemoryEvaluatorHook supports only a single machine; the config has "
                f"num_worker_replicas={config.num_worker_replicas} and "
                f"num_ps_replicas={config.num_ps_replicas}. Use train_and_evaluate with an "
                f"evaluator process."
            )
        if estimator.evaluates_on_tpu:
            raise InvalidSetting(
                "InMemoryEvaluatorHook evaluates while training holds the TPU. Pass "
                "eval_on_tpu=False to TPUEstimator, or use train_and_evaluate."
            )
        self._estimator = estimator
        self._input_fn = input_fn
        self._steps = steps
        self._hooks = list(hooks or ())
        self._name = name
        self._every_n_iter = every_n_iter
        self._variables: VariableValues = {}
        self._global_step: Any = None
        self._last_evaluated: int | None = None
        self._steps_per_run = 1

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        self._steps_per_run = steps_per_run

    def begin(self) -> None:
        """Find the global step variable of the training graph."""
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Find the variables of the training graph, including those that hooks have created."""
        self._variables = {
            variable.op.name: variable for variable in tf.compat.v1.global_variables()
        }
        self._last_evaluated = None

    def before_run(self, run_context: Any) -> Any:
        """Evaluate the initial values before the first `session.run`; fetch the global step.

        The first evaluation does not take place in `after_create_session`, because the
        `after_create_session` of another hook can run later and change the variables.
        `after_run` reads the fetched global step.
        """
        if self._last_evaluated is None:
            self._evaluate(run_context.session)
        return tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Evaluate if enough steps have passed since the last evaluation."""
        # The fetched global step can be too small, because TensorFlow can fetch it before the
        # training loop increments it. So read the exact step by another session.run.
        assert self._last_evaluated is not None
        latest_step = int(run_values.results) + self._steps_per_run
        if latest_step - self._last_evaluated < self._every_n_iter:
            return
        step = int(run_context.session.run(self._global_step))
        if step - self._last_evaluated >= self._every_n_iter:
            self._evaluate(run_context.session)

    def end(self, session: Any) -> None:
        """Evaluate the final values, unless the last evaluation was of the same global step."""
        if int(session.run(self._global_step)) != self._last_evaluated:
            self._evaluate(session)

    def _evaluate(self, session: Any) -> None:
        """Evaluate the model with the variables' current values in the training session."""
        values = session.run(self._variables)
        self._last_evaluated = int(session.run(self._global_step))
        # If a SIGTERM ends the evaluation, do not let GracefulExit end the process: return to
        # training, which saves a checkpoint and stops.
        with contextlib.suppress(graceful_shutdown.GracefulExit):
            self._estimator.evaluate(
                self._input_fn,
                steps=self._steps,
                hooks=[*self._hooks, _LoadHook(values)],
                name=self._name,
            )


class _LoadHook(tf.compat.v1.train.SessionRunHook):
    """Assigns the values of training variables to the evaluation variables of the same names."""

    def __init__(self, values: VariableValues) -> None:
        self._values = values
        self._assignments: list[Any] = []
        # Maps the placeholder of each assignment to the value to assign.
        self._feeds: dict[Any, Any] = {}

    def _set_scaffold(self, scaffold: Any) -> None:
        """Check that the Scaffold of the evaluation's EstimatorSpec has no saver and no init_fn."""
        custom = [name for name in ("saver", "init_fn") if getattr(scaffold, name) is not None]
        if custom:
            raise InvalidSetting(
                f"InMemoryEvaluatorHook does not support custom {' and '.join(custom)}, and the "
                f"scaffold of the model's spec for evaluation has one: the hook gives each "
                f"variable the value that it has in training. Leave it out of the spec, or use "
                f"train_and_evaluate."
            )

    def begin(self) -> None:
        """Build the ops that assign the values from training."""
        others = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS)
        if others:
            raise InvalidSetting(
                f"InMemoryEvaluatorHook does not support saveables other than global variables, "
                f"and the model has {others[0].name!r}: the hook copies only variables from "
                f"training. Use train_and_evaluate."
            )
        for variable in tf.compat.v1.global_variables():
            if variable.op.name in self._values:
                # Feed a placeholder, and not the initial value of the variable: variables that
                # share one tensor as their initial value would all get the same value.
                placeholder = tf.compat.v1.placeholder(variable.dtype.base_dtype)
                assignment = tf.compat.v1.assign(variable, placeholder, validate_shape=False)
                self._assignments.append(assignment.op)
                self._feeds[placeholder] = self._values[variable.op.name]

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._assignments, self._feeds)
