from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from trainer.execution import train_loop
from trainer.execution import train_loop as iteration_count

v1 = tf.compat.v1


class Momentum:
    """A training loop that moves w from 0 towards 1 by momentum; its input is 1, 2, 3, ..."""

    def __init__(self, iterations_per_loop: int, use_resource: bool = True) -> None:
        with tf.Graph().as_default() as graph:
            self.global_step = v1.train.create_global_step()
            counted = tf.data.Dataset.range(1, 100).map(lambda number: tf.cast(number, tf.float32))
            iterator = v1.data.make_initializable_iterator(counted)
            self.input = iterator.get_next()
            self.w = v1.get_variable("w", initializer=0.0, use_resource=use_resource)
            self.loss = (self.w - 1.0) ** 2 * self.input / 100.0
            optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
            train_op = optimizer.minimize(self.loss, global_step=self.global_step)
            self.loop = train_loop.build_train_loop(
                train_op, self.loss, self.global_step, iterations_per_loop
            )
            self.session = v1.Session(graph=graph)
            self.session.run([v1.global_variables_initializer(), iterator.initializer])

    def run(self, steps: int, fetches: Any) -> Any:
        fed = {self.loop.iterations: steps}
        _, fetched = self.session.run([self.loop.train_op, fetches], fed)
        return fetched

    def state(self) -> list[float]:
        return list(self.session.run([self.w, self.global_step]))


@pytest.mark.numeric
def test_steps_in_one_run_are_the_same_as_one_by_one() -> None:
    one_by_one, looped = Momentum(1), Momentum(10)
    for _ in range(13):
        one_by_one.run(1, one_by_one.loss)
    looped.run(10, looped.loss)
    looped.run(3, looped.loss)
    assert looped.state() == pytest.approx(one_by_one.state(), rel=1e-6)


def test_each_run_makes_the_number_of_steps_that_is_fed() -> None:
    looped = Momentum(10)
    for steps, total in ((1, 1), (10, 11), (2, 13)):
        looped.run(steps, [])
        assert looped.state()[1] == total


@pytest.mark.numeric
def test_the_loss_and_every_other_tensor_are_those_of_the_last_step() -> None:
    one_by_one, looped = Momentum(1), Momentum(10)
    losses = [one_by_one.run(1, one_by_one.loss) for _ in range(7)]
    loss, last_input, step = looped.run(7, [looped.loop.loss, looped.input, looped.loop.step])
    assert loss == pytest.approx(losses[-1], rel=1e-6)
    assert (last_input, step) == (7.0, 7)


def test_without_feeding_a_run_makes_one_step() -> None:
    looped = Momentum(10)
    looped.session.run(looped.loop.train_op)
    assert looped.state()[1] == 1


def test_the_end_of_the_input_is_raised_and_the_steps_before_it_count() -> None:
    looped = Momentum(200)
    with pytest.raises(tf.errors.OutOfRangeError):
        looped.run(200, [])
    assert looped.state()[1] == 99


def test_reference_variables_are_stepped_one_by_one_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    single = Momentum(10, use_resource=False)
    assert single.loop.max_iterations == 1
    assert "one step in each session.run, not 10" in caplog.text
    assert "use_resource=True" in caplog.text
    single.run(1, [])
    assert single.state()[1] == 1


def test_the_warning_for_an_unlimited_loop_names_no_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Momentum(iteration_count.UNBOUNDED, use_resource=False)
    assert "one step in each session.run, not several: " in caplog.text


def test_a_step_that_is_fed_is_stepped_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    with tf.Graph().as_default():
        fed = v1.placeholder(tf.float32, [], name="fed")
        w = v1.get_variable("w", initializer=0.0, use_resource=True)
        step = v1.train.create_global_step()
        model = train_loop.build_train_loop(w.assign_add(fed), fed * 1.0, step, 10)
    assert model.max_iterations == 1
    assert "placeholder 'fed' is fed by each session.run" in caplog.text


def test_random_ops_control_flow_and_tensor_arrays_can_be_in_a_step() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        total = v1.get_variable("total", initializer=0.0, use_resource=True)
        noise = tf.random.uniform([])
        array = v1.TensorArray(tf.float32, 3).unstack(tf.ones([3]))
        counted = v1.while_loop(
            lambda i, s: i < 3, lambda i, s: (i + 1, s + array.read(i)), [0, 0.0]
        )
        loss = tf.cond(noise < 2.0, lambda: counted[1], lambda: -1.0)
        step = v1.train.create_global_step()
        train_op = tf.group(total.assign_add(loss), step.assign_add(1))
        model = train_loop.build_train_loop(train_op, loss, step, 5)
        session.run(v1.global_variables_initializer())
        session.run(model.train_op, {model.iterations: 5})
        assert session.run([total, step]) == [15.0, 5]


def made_of(build: Callable[[], tuple[Any, Any]], steps: int) -> list[Any]:
    """Run several steps in one session.run; return the watched tensors of the last step.

    Args:
      build: builds one step; returns its train op and the tensors to watch.
      steps: the number of steps.
    """
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("", use_resource=True):
            train_op, watched = build()
        step = v1.train.create_global_step()
        model = train_loop.build_train_loop(train_op, tf.constant(0.0), step, 100)
        session.run(v1.global_variables_initializer())
        return list(session.run([watched, model.train_op], {model.iterations: steps}))


def test_a_variable_gathered_by_constant_indices_is_that_of_the_last_step() -> None:
    def build() -> tuple[Any, Any]:
        table = v1.get_variable("table", initializer=[0.0, 10.0])
        rows = tf.gather(table, [1])
        with tf.control_dependencies([rows]):
            return tf.group(table.assign_add([1.0, rows[0]])), rows

    # Each step doubles the row that it gathers: 10, 20, 40, 80, 160.
    assert made_of(build, steps=5)[0] == [160.0]


def test_an_embedding_looked_up_by_sparse_ids_is_that_of_the_last_step() -> None:
    def build() -> tuple[Any, Any]:
        table = v1.get_variable("table", initializer=[[10.0]])
        # A slow step, and an id that is known to be 0 only when it runs.
        noise = tf.random.uniform([300, 300])
        with tf.control_dependencies([noise @ noise]):
            number = tf.random.uniform([1], 0, 1, tf.int64)
        ids = tf.sparse.SparseTensor([[0, 0]], number, [1, 1])
        row = v1.nn.embedding_lookup_sparse(table, ids, None, combiner="sum")
        with tf.control_dependencies([row]):
            return tf.group(table.assign_add([[1.0]])), 2.0 * row

    # The steps look up 10, 11, 12 and so on.
    assert made_of(build, steps=20)[0] == [[2.0 * 29.0]]


def test_a_summary_reads_variables_after_the_loop() -> None:
    def build() -> tuple[Any, Any]:
        count = v1.get_variable("count", initializer=0)
        return count.assign_add(1), count.read_value()

    # The graph does not say whether the summary reads the variable before or after the last step.
    assert made_of(build, steps=100)[0] in (99, 100)


def test_control_flow_of_version_1_can_be_in_a_step() -> None:
    def build() -> tuple[Any, Any]:
        total = v1.get_variable("total", initializer=0.0)

        def body(i: Any, s: Any) -> tuple[Any, Any]:
            return i + 1, s + tf.math.ceil(tf.random.uniform([], 0.1, 0.9))

        counted = v1.while_loop(lambda i, s: i < 3, body, [0, 0.0])[1]
        doubled = v1.cond(counted > 0.0, lambda: counted * 2.0, lambda: counted)
        slope = tf.gradients(doubled, [counted])[0]
        with tf.control_dependencies([total.assign_add(doubled * slope)]):
            return tf.no_op(), total.read_value()

    v1.disable_control_flow_v2()
    try:
        # The result is 3, doubled by the loop, times the slope 2.
        assert made_of(build, steps=4)[0] in (36.0, 48.0)
    finally:
        v1.enable_control_flow_v2()


def test_seeded_random_numbers_are_others_in_each_step_and_the_same_in_each_run() -> None:
    def build() -> tuple[Any, Any]:
        drawn = v1.get_variable("drawn", initializer=tf.zeros([2]))
        noise = tf.random.uniform([], seed=3)
        update = drawn.assign(tf.stack([drawn[1], noise]))
        with tf.control_dependencies([update]):
            return tf.no_op(), drawn.read_value()

    first, second = (made_of(build, steps=2)[0] for _ in range(2))
    assert first[0] != first[1]
    assert first.tolist() == second.tolist()


def test_a_fed_value_with_a_default_holds_for_every_step_of_a_run() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        rate = v1.placeholder_with_default(1.0, [])
        w = v1.get_variable("w", initializer=0.0, use_resource=True)
        model = train_loop.build_train_loop(
            w.assign_add(rate), rate * 1.0, v1.train.create_global_step(), 10
        )
        session.run(v1.global_variables_initializer())
        session.run(model.train_op, {model.iterations: 5, rate: 100.0})
        assert session.run(w) == 500.0


def test_a_table_that_takes_inputs_is_the_same_one_in_every_step() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, 0.0, -1, -2)
        key = tf.constant([7], tf.int64)
        insert = table.insert(key, table.lookup(key) + 1.0)
        with tf.control_dependencies([insert]):
            count = table.lookup(key)[0]
        model = train_loop.build_train_loop(count, count, v1.train.create_global_step(), 10)
        session.run(v1.global_variables_initializer())
        _, counted = session.run([model.train_op, model.loss], {model.iterations: 5})
        assert counted == 5.0
