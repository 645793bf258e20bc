from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting, InvalidType
from trainer.estimator.in_memory_evaluator import InMemoryEvaluatorHook

v1 = tf.compat.v1


@pytest.mark.slow
def test_the_values_of_the_step_are_evaluated_without_a_checkpoint_of_it(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path, iterations_per_loop=2)
    hook = InMemoryEvaluatorHook(estimator, programs.ones(), steps=1, every_n_iter=4)
    estimator.train(programs.ones(), hooks=[hook], max_steps=10)
    # The slope after each step is 1 - 2**-step. The hook also evaluates at the end of training.
    expected = {0: 0.0, 4: 1 - 2**-4, 8: 1 - 2**-8, 10: 1 - 2**-10}
    assert programs.scalars(tmp_path / "eval")["mean_y"] == expected
    assert not list(tmp_path.glob("model.ckpt-4*"))


def test_variables_that_share_their_initial_value_have_values_of_their_own(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        zero = tf.zeros([])
        one, two = (v1.Variable(zero, name=name, use_resource=True) for name in ("one", "two"))
        step = v1.train.get_global_step()
        return trainer.EstimatorSpec(
            mode,
            loss=tf.reduce_mean(labels),
            train_op=tf.group(one.assign_add(1.0), two.assign_add(2.0), step.assign_add(1)),
            eval_metric_ops={"one": v1.metrics.mean(one), "two": v1.metrics.mean(two)},
        )

    estimator = programs.estimator(tmp_path, model_fn=model_fn)
    hook = InMemoryEvaluatorHook(estimator, programs.ones(), steps=1)
    estimator.train(programs.ones(), hooks=[hook], max_steps=3)
    evaluated = programs.scalars(tmp_path / "eval")
    assert (evaluated["one"], evaluated["two"]) == ({0: 0.0, 3: 3.0}, {0: 0.0, 3: 6.0})


def test_hooks_and_name_are_those_of_the_evaluation(tmp_path: Path) -> None:
    class Begins(tf.compat.v1.train.SessionRunHook):
        graphs: list[Any] = []

        def begin(self) -> None:
            self.graphs.append(tf.compat.v1.get_default_graph())

    estimator = programs.estimator(tmp_path, iterations_per_loop=1)
    hook = InMemoryEvaluatorHook(
        estimator, programs.ones(), steps=1, hooks=[Begins()], name="now", every_n_iter=100
    )
    estimator.train(programs.ones(), hooks=[hook], max_steps=1)
    assert list(programs.scalars(tmp_path / "eval_now")["mean_y"]) == [0, 1]
    assert len(Begins.graphs) == 2


@pytest.mark.parametrize("every_n_iter", [0, -1, None])
def test_the_distance_must_be_positive(every_n_iter: Any, tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path)
    with pytest.raises(InvalidSetting, match=f"every_n_iter is {every_n_iter}"):
        InMemoryEvaluatorHook(estimator, programs.ones(), every_n_iter=every_n_iter)


def test_what_is_no_estimator_is_refused() -> None:
    with pytest.raises(InvalidType, match="estimator must have type"):
        InMemoryEvaluatorHook(object(), programs.ones())


def test_a_table_whose_entries_training_adds_is_refused(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
        spec = programs.slope_model_fn(features, labels, mode, params)
        if mode == trainer.ModeKeys.TRAIN:
            insert = table.insert(tf.constant([1], tf.int64), [1.0])
            return spec._replace(train_op=tf.group(spec.train_op, insert))
        return spec

    estimator = programs.estimator(tmp_path, model_fn=model_fn)
    hook = InMemoryEvaluatorHook(estimator, programs.ones(), steps=1)
    with pytest.raises(InvalidSetting, match="other than global variables, .*MutableHashTable"):
        estimator.train(programs.ones(), hooks=[hook], max_steps=1)


@pytest.mark.parametrize("part", ["saver", "init_fn"])
def test_a_scaffold_with_other_values_than_those_of_training_is_refused(
    tmp_path: Path, part: str
) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params)
        if mode != trainer.ModeKeys.EVAL:
            return spec

        values = {"saver": v1.train.Saver(), "init_fn": lambda *_: None}
        scaffold = v1.train.Scaffold(**{part: values[part]})
        return spec._replace(scaffold_fn=lambda: scaffold)

    estimator = programs.estimator(tmp_path, model_fn=model_fn)
    hook = InMemoryEvaluatorHook(estimator, programs.ones(), steps=1)
    with pytest.raises(InvalidSetting, match=f"does not support custom {part}"):
        estimator.train(programs.ones(), hooks=[hook], max_steps=1)
