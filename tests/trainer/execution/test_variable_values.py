"""In sessions of an estimator, the name of a variable stands for its value."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tests.trainer.backends.tpu import slope
from trainer.execution import run_graph

v1 = tf.compat.v1


class FetchHook(tf.compat.v1.train.SessionRunHook):
    """Fetches the slope by its name, before, during and after each `session.run`."""

    def __init__(self) -> None:
        self.values: list[list[float]] = []

    def before_run(self, context: Any) -> Any:
        self.values.append([context.session.run("w:0")])
        return v1.train.SessionRunArgs({"w": "w:0"})

    def after_run(self, context: Any, run_values: Any) -> None:
        tensor = context.session.graph.get_tensor_by_name("w:0")
        self.values[-1] += [run_values.results["w"], context.session.run(tensor)]


@pytest.mark.parametrize(
    "kind",
    [
        "cpu",
        pytest.param("emulated", marks=pytest.mark.slow),
        pytest.param("pjrt", marks=pytest.mark.slow),
    ],
)
def test_hooks_fetch_a_variable_by_its_name(kind: str, tmp_path: Path) -> None:
    estimator = programs.estimator(
        tmp_path, iterations_per_loop=1, use_tpu=kind != "cpu", train_batch_size=2
    )
    hook = FetchHook()
    with slope.tpu(1, kind=kind if kind != "cpu" else "emulated"):
        estimator.train(programs.ones(), hooks=[hook], max_steps=2)
    # The slope after each step is 1 - 2**-step. A fetch beside the step may see it or not.
    for step, (before, beside, after) in enumerate(hook.values):
        assert (before, after) == (1 - 2**-step, 1 - 2 ** -(step + 1))
        assert beside in (before, after)
    assert len(hook.values) == 2


def test_a_variable_that_does_not_validate_its_shape_takes_values_of_any() -> None:
    with run_graph.new_run_graph(trainer.RunConfig()), v1.Session() as session:
        variable = v1.Variable(0.0, validate_shape=False)
        update = v1.assign(variable, [1.0, 2.0], validate_shape=False)
        session.run(variable.initializer)
        session.run(update)
        assert session.run(variable.value()).tolist() == [1, 2]
