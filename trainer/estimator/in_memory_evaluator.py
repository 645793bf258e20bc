"""InMemoryEvaluatorHook: evaluates while training, without a checkpoint in between."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.config import validation
from trainer.estimator import estimator_type
from trainer.execution import graceful_shutdown

Values = dict[str, Any]


class InMemoryEvaluatorHook(tf.compat.v1.train.SessionRunHook):
    """Evaluates the variables as they are, before training, every so many steps, and at its end.

    Results go where evaluate() writes them. Evaluation takes part of the memory and all of the
    time while it runs, so it suits small evaluations.

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
        """Evaluates nothing yet.

        Args:
          estimator: what is trained.
          input_fn: gives batches of (features, labels) to evaluate on.
          steps: how many batches; None goes on until the input ends.
          hooks: SessionRunHooks of the evaluation.
          name: tells several evaluations of one model apart.
          every_n_iter: training steps between two evaluations; one comes after the loop that
            reaches so many.

        Raises:
          InvalidType: it is no estimator.
          InvalidSetting: every_n_iter is less than 1, training runs on several machines, or
            evaluation would need the TPU that training holds.
        """
        estimator_type.check_is_estimator(estimator)
        validation.check("every_n_iter", every_n_iter, least=1, optional=False)
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
        self._variables: Values = {}
        self._global_step: Any = None
        self._last_evaluated: int | None = None
        self._steps_per_run = 1

    def _set_steps_per_run(self, steps_per_run: int) -> None:
        self._steps_per_run = steps_per_run

    def begin(self) -> None:
        """Finds the global step."""
        self._global_step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Finds the variables, those of other hooks included."""
        self._variables = {each.op.name: each for each in tf.compat.v1.global_variables()}
        self._last_evaluated = None

    def before_run(self, run_context: Any) -> Any:
        """Asks for the step; before the first loop, evaluates the values that training starts from.

        Not when the session is created: other hooks, such as one that loads values, may follow.
        """
        if self._last_evaluated is None:
            self._evaluate(run_context.session)
        return tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Evaluates if it is time."""
        # What was fetched may have been read before the loop counted its steps.
        assert self._last_evaluated is not None
        latest_step = int(run_values.results) + self._steps_per_run
        if latest_step - self._last_evaluated < self._every_n_iter:
            return
        step = int(run_context.session.run(self._global_step))
        if step - self._last_evaluated >= self._every_n_iter:
            self._evaluate(run_context.session)

    def end(self, session: Any) -> None:
        """Evaluates the last values, unless that was done."""
        if int(session.run(self._global_step)) != self._last_evaluated:
            self._evaluate(session)

    def _evaluate(self, session: Any) -> None:
        values = session.run(self._variables)
        self._last_evaluated = int(session.run(self._global_step))
        # Asked to end, training saves what it has come to.
        with contextlib.suppress(graceful_shutdown.GracefulExit):
            self._estimator.evaluate(
                self._input_fn,
                steps=self._steps,
                hooks=[*self._hooks, _LoadHook(values)],
                name=self._name,
            )


class _LoadHook(tf.compat.v1.train.SessionRunHook):
    """Gives variables the values of another session, by name."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def after_create_session(self, session: Any, coord: Any) -> None:
        variables = [
            each for each in tf.compat.v1.global_variables() if each.op.name in self._values
        ]
        # The initial value is the second input of the op that assigns it, so it can be fed.
        session.run(
            [each.initializer for each in variables],
            {each.initializer.inputs[1]: self._values[each.op.name] for each in variables},
        )
