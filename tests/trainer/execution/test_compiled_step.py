from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import UncompilableStep
from trainer.config.run_config import RunConfig
from trainer.execution import run_graph, train_loop
from trainer.execution.source_locations import SourceLocations

v1 = tf.compat.v1

ModelFn = Callable[[Any], Any]


class Program:
    """Trains a model on batches of random images; the loss is the mean square of its outputs.

    Attributes:
      ops: the types of the ops that ran in the last `run`.
    """

    def __init__(
        self,
        model: ModelFn,
        compile_step: bool | str,
        *,
        sizes: tuple[int, ...] | None = None,
        wrap: Callable[[Any, Any], Any] = lambda train_op, loss: train_op,
    ) -> None:
        step = v1.train.get_global_step()
        images = tf.constant(np.random.default_rng(1).random((64, 4, 4, 1), np.float32))
        dataset = tf.data.Dataset.from_tensor_slices(images).repeat()
        if sizes is None:
            dataset = dataset.batch(4, drop_remainder=True)
        else:
            bounds = np.cumsum((0, *sizes))
            ranges = tf.data.Dataset.from_tensor_slices((bounds[:-1], bounds[1:]))
            dataset = ranges.map(lambda first, end: images[first:end])
        iterator = v1.data.make_initializable_iterator(dataset)
        self.input = iterator.get_next()
        self.loss = tf.reduce_mean(model(self.input) ** 2)
        optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
        train_op = wrap(optimizer.minimize(self.loss, global_step=step), self.loss)
        locations = SourceLocations()
        locations.record(v1.get_default_graph())
        self.loop = train_loop.build_train_loop(
            train_op, self.loss, step, 10, compile_step, locations.line_of
        )
        self.session = v1.Session()
        self.session.run([v1.global_variables_initializer(), iterator.initializer])
        self.ops: set[str] = set()

    def run(self, steps: int, *, in_xla: bool = False, sizes: list[int] | None = None) -> Any:
        """Run a training loop; return the loss of its last step.

        Args:
          steps: the number of steps.
          in_xla: whether to run the steps in XLA.
          sizes: the value of CompiledStep.compiled_sizes; None if all shapes are static.
        """
        feeds: dict[Any, Any] = {self.loop.iterations: steps}
        if in_xla:
            assert self.loop.compiled is not None
            feeds[self.loop.compiled.uses_xla] = True
            if sizes is not None:
                feeds[self.loop.compiled.compiled_sizes] = sizes
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        fetches = [self.loop.train_op, self.loop.loss]
        _, loss = self.session.run(fetches, feeds, options, metadata)
        self.ops = {
            node.timeline_label.partition(" = ")[2].partition("(")[0]
            for device in metadata.step_stats.dev_stats
            for node in device.node_stats
        }
        return loss

    def weights(self) -> list[Any]:
        return list(self.session.run(v1.trainable_variables()))


@contextmanager
def fresh_graph() -> Iterator[None]:
    with run_graph.new_run_graph(RunConfig(tf_random_seed=1), has_single_replica=True):
        yield


def smooth(images: Any) -> Any:
    """Build a convolution, a smooth activation and max pooling."""
    kernel = v1.get_variable("kernel", [3, 3, 1, 2], initializer=v1.glorot_uniform_initializer())
    hidden = tf.tanh(tf.nn.conv2d(images, kernel, 1, "SAME"))
    return tf.nn.max_pool2d(hidden, 2, 2, "VALID")


def with_dropout(images: Any) -> Any:
    return tf.nn.dropout(smooth(images), rate=0.5)


_CALL_OF_XLA = "StatefulPartitionedCall"


@pytest.mark.slow
@pytest.mark.numeric
@pytest.mark.parametrize("model", [smooth, with_dropout])
def test_a_run_may_change_between_xla_and_the_kernels_without_changing_results(
    model: ModelFn,
) -> None:
    # Random numbers are drawn outside of XLA, so that dropout drops the same units. Only the last
    # digits of sums differ: 2e-7 of a value near 1 in a step, in 13 steps with momentum some 1e-5.
    with fresh_graph():
        plain = Program(model, False)
        losses = [plain.run(steps) for steps in (2, 4, 3, 4)]
        expected = plain.weights()
    with fresh_graph():
        both = Program(model, "auto")
        mixed = [both.run(2), both.run(4, in_xla=True), both.run(3), both.run(4, in_xla=True)]
        assert _CALL_OF_XLA in both.ops
        assert mixed == pytest.approx(losses, rel=1e-4)
        for weight, other in zip(both.weights(), expected, strict=True):
            np.testing.assert_allclose(weight, other, atol=1e-4)


def test_without_the_placeholder_no_step_runs_in_xla() -> None:
    with fresh_graph():
        program = Program(smooth, "auto")
        program.run(5)
        assert _CALL_OF_XLA not in program.ops


@pytest.mark.slow
@pytest.mark.numeric
def test_a_batch_of_another_size_runs_in_the_kernels() -> None:
    sizes = (4, 4, 4, 4, 4, 3, 3, 3)
    with fresh_graph():
        plain = Program(smooth, False, sizes=sizes)
        losses = [plain.run(2), plain.run(3), plain.run(3)]
    with fresh_graph():
        both = Program(smooth, "auto", sizes=sizes)
        assert both.loop.compiled is not None
        first = both.run(2)
        second = both.run(3, in_xla=True, sizes=[4, 4, 4, 1])
        assert _CALL_OF_XLA in both.ops
        third = both.run(3, in_xla=True, sizes=[4, 4, 4, 1])
        assert _CALL_OF_XLA not in both.ops
        assert [first, second, third] == pytest.approx(losses, rel=1e-4)


def test_the_sizes_that_are_unknown_before_a_step_can_be_fetched() -> None:
    with fresh_graph():
        program = Program(smooth, "auto", sizes=(3, 4))
        assert program.loop.compiled is not None
        sizes = program.loop.compiled.unknown_sizes
        assert list(program.session.run(sizes)) == [3, 4, 4, 1]


def test_python_functions_and_prints_that_nothing_needs_run_in_each_step() -> None:
    losses: list[float] = []

    def record(value: float) -> float:
        losses.append(value)
        return value

    def wrap(train_op: Any, loss: Any) -> Any:
        with tf.control_dependencies([train_op]):
            (called,) = v1.py_func(record, [loss], [tf.float32])
        return tf.group(train_op, called)

    with fresh_graph():
        program = Program(smooth, True, wrap=wrap)
        last = program.run(4, in_xla=True)
    assert _CALL_OF_XLA in program.ops
    assert len(losses) == 4
    assert losses[-1] == last


def test_an_op_in_the_middle_that_xla_cannot_run_is_named_with_its_line() -> None:
    def model(images: Any) -> Any:
        hidden = smooth(images)
        (doubled,) = v1.py_func(lambda value: 2 * value, [hidden], [tf.float32])
        return hidden * tf.ensure_shape(doubled, [4, 2, 2, 2])

    with fresh_graph(), pytest.raises(UncompilableStep) as caught:
        Program(model, True)
    message = str(caught.value)
    assert "compile_step=True" in message
    assert "PyFunc" in message
    assert "test_compiled_step.py" in message
    assert "v1.py_func(lambda value: 2 * value" in message
    with fresh_graph():
        automatic = Program(model, "auto")
        assert automatic.loop.compiled is not None
        assert "PyFunc" in automatic.loop.compiled.obstacle
        automatic.run(3)


def test_a_step_that_xla_cannot_translate_is_found_before_it_runs() -> None:
    def model(images: Any) -> Any:
        count = tf.cast(tf.argmax(tf.reshape(smooth(images), [-1])), tf.int32)
        return smooth_again(tf.ones([tf.minimum(count, 1) + 1, 2]))

    def smooth_again(values: Any) -> Any:
        return values * v1.get_variable("scale", [], initializer=v1.ones_initializer())

    with fresh_graph():
        program = Program(model, "auto")
        assert program.loop.compiled is not None
        with pytest.raises(UncompilableStep, match="must be a constant"):
            program.loop.compiled.check([])


def test_a_compiled_step_needs_several_steps_in_a_run() -> None:
    with fresh_graph():
        step = v1.train.get_global_step()
        w = v1.get_variable("w", initializer=1.0)
        with pytest.raises(UncompilableStep, match="iterations_per_loop"):
            train_loop.build_train_loop(w.assign_add(1.0), w * 1.0, step, 1, True)


def test_a_gradient_of_max_pooling_in_xla_goes_to_the_first_of_equal_values() -> None:
    # The window's values are 1, 1, 0, 1: TensorFlow's kernel gives the gradient to the first.
    # With x = (1, 1, 0, 1) w and the loss (max w)^2 = w^2, the gradient of w is 2 w = 2.
    with fresh_graph():
        step = v1.train.get_global_step()
        w = v1.get_variable("w", initializer=tf.ones([1, 2, 2, 1]))
        ones = tf.constant([1.0, 1.0, 0.0, 1.0], shape=[1, 2, 2, 1])
        loss = tf.reduce_sum(tf.nn.max_pool2d(w * ones, 2, 2, "VALID") ** 2)
        train_op = v1.train.GradientDescentOptimizer(0.25).minimize(loss, global_step=step)
        loop = train_loop.build_train_loop(train_op, loss, step, 10, True)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            assert loop.compiled is not None
            feeds = {loop.iterations: 2, loop.compiled.uses_xla: True}
            # The first step halves the first weight: 1 - 0.25 * 2. Then the second is the maximum.
            session.run(loop.train_op, feeds)
            np.testing.assert_array_equal(session.run(w).ravel(), [0.5, 0.5, 1.0, 1.0])


def test_a_gradient_of_nearest_neighbors_runs_in_xla() -> None:
    # Each of the four pixels is w, so the loss is 4 w^2, its gradient 8 w, and a step halves w.
    with fresh_graph():
        step = v1.train.get_global_step()
        w = v1.get_variable("w", initializer=tf.ones([1, 1, 1, 1]))
        loss = tf.reduce_sum(v1.image.resize_nearest_neighbor(w * 1.0, [2, 2]) ** 2)
        train_op = v1.train.GradientDescentOptimizer(1 / 16).minimize(loss, global_step=step)
        loop = train_loop.build_train_loop(train_op, loss, step, 10, True)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            assert loop.compiled is not None
            session.run(loop.train_op, {loop.iterations: 2, loop.compiled.uses_xla: True})
            assert session.run(w).ravel() == [0.25]
