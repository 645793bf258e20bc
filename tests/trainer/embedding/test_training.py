"""Embedding tables are trained to the same numbers on the CPU and on an emulated TPU."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer.backends.tpu import slope
from tests.trainer.embedding import sums
from trainer.embedding.optimization_parameters import (
    AdagradParameters,
    AdamParameters,
    FtrlParameters,
    StochasticGradientDescentParameters,
)

pytestmark = [pytest.mark.slow, pytest.mark.first]

OPTIMIZERS = {
    "sgd": StochasticGradientDescentParameters(0.5),
    "adagrad": AdagradParameters(0.1),
    "adam": AdamParameters(0.1, epsilon=1e-3),
    "adam_of_all_rows": AdamParameters(0.1, epsilon=1e-3, lazy_adam=False, sum_inside_sqrt=False),
    "ftrl": FtrlParameters(
        0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.1, beta=0.1
    ),
    "one_by_one": AdagradParameters(0.1, use_gradient_accumulation=False),
    "limits": StochasticGradientDescentParameters(
        0.5, clip_weight_max=1.2, weight_decay_factor=0.1, clip_gradient_min=-0.2
    ),
}
SLOTS = {
    "sgd": (),
    "adagrad": ("Adagrad",),
    "adam": ("Adam/m", "Adam/v"),
    "adam_of_all_rows": ("Adam/m", "Adam/v"),
    "ftrl": ("Ftrl", "Ftrl_1"),
    "one_by_one": ("Adagrad",),
    "limits": (),
}


@pytest.mark.numeric
def test_gradients_of_an_id_in_several_replicas_are_summed_before_one_update(
    tmp_path: Path,
) -> None:
    # Replica 0 gets rows with the ids [0] and [0, 1], and replica 1 gets [1] and [2]. All numbers
    # in the table are 0 at first. So with labels of 1, each activation has the gradient -1 / 4 in
    # both columns. Both replicas look up id 1: with the combiner sum, its gradient is -1 / 2.
    spec = sums.spec(combiner="sum", initializer=sums.v1.zeros_initializer())
    with slope.tpu(2):
        sums.estimator(tmp_path, spec).train(
            sums.batches([[0, -1], [0, 1], [1, -1], [2, -1]]), steps=1
        )
    table = sums.variables(tmp_path)["words"]
    # Id 0 is in two rows of the batch too, both of replica 0.
    expected = [[0.25] * 2, [0.25] * 2, [0.125] * 2] + [[0.0] * 2] * 4
    np.testing.assert_allclose(table, expected, rtol=1e-6)


@pytest.fixture
def _tensorflow_1_shapes() -> Iterator[None]:
    sums.v1.disable_v2_tensorshape()
    yield
    sums.v1.enable_v2_tensorshape()


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.usefixtures("_tensorflow_1_shapes")
@pytest.mark.numeric
def test_tables_train_on_several_cores_in_a_program_of_tensorflow_1(
    pipelined: bool, tmp_path: Path
) -> None:
    spec = sums.spec(initializer=sums.v1.zeros_initializer(), pipelined=pipelined)
    with slope.tpu(2):
        sums.estimator(tmp_path, spec).train(sums.batches([[0], [1], [2], [1]]), steps=1)
    # Each row's gradient is -1 / 4 in both columns, and the learning rate is 0.5.
    expected = [[0.125] * 2, [0.25] * 2, [0.125] * 2] + [[0.0] * 2] * 4
    np.testing.assert_allclose(sums.variables(tmp_path)["words"], expected, rtol=1e-6)


@pytest.mark.parametrize("use_tpu", [False, True])
def test_a_warm_start_gives_the_tables_their_values(use_tpu: bool, tmp_path: Path) -> None:
    ids = sums.batches([[0, -1], [1, -1], [2, -1], [3, -1]])
    with slope.tpu(2):
        first = sums.estimator(tmp_path / "1", sums.spec(), use_tpu=use_tpu)
        first.train(ids, steps=2)
        second = trainer.TPUEstimator(
            sums.model_fn,
            str(tmp_path / "2"),
            trainer.RunConfig(),
            use_tpu=use_tpu,
            train_batch_size=4,
            embedding_config_spec=sums.spec(initializer=sums.v1.zeros_initializer()),
            warm_start_from=first.model_dir,
        )
        second.train(ids, steps=1)
    trained, started = (sums.variables(tmp_path / name)["words"] for name in "12")
    # The ids 4 to 6 are in no batch, so training does not change their rows.
    np.testing.assert_array_equal(started[4:], trained[4:])
    assert started[4:].min() > 0


@pytest.fixture(scope="module")
def on_cpu_and_tpu(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Train a table with each optimizer, on the CPU and on two cores; return the variables."""
    spec = sums.spec_of_tables(
        {name: {"optimization_parameters": parameters} for name, parameters in OPTIMIZERS.items()}
    )
    other_ids = [[0, 5, -1], [5, -1, -1], [-1, -1, -1], [6, 6, 6]]
    ids = sums.batches(sums.IDS, other_ids, features=OPTIMIZERS)
    trained = []
    for use_tpu in (False, True):
        model_dir = tmp_path_factory.mktemp("tables")
        model = sums.estimator(model_dir, spec, use_tpu=use_tpu, model=sums.model_fn_of_tables)
        with slope.tpu(2):
            model.train(ids, steps=3)
        trained.append(sums.variables(model_dir))
    return trained


# Without accumulation of gradients, the numbers depend on the number of cores.
@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - {"one_by_one"}))
@pytest.mark.numeric
def test_cpu_and_emulated_cores_train_the_same_variables(
    name: str, on_cpu_and_tpu: list[dict[str, Any]]
) -> None:
    # Both runs compute in float32, but add in different orders. Each of the 3 steps changes an
    # entry by less than 1, so 1e-5 allows for the rounding of about a hundred additions.
    on_cpu, on_tpu = (
        {variable: value for variable, value in run.items() if variable.split("/")[0] == name}
        for run in on_cpu_and_tpu
    )
    assert set(on_cpu) == set(on_tpu) == {name, *(f"{name}/{slot}" for slot in SLOTS[name])}
    for variable, value in on_cpu.items():
        np.testing.assert_allclose(on_tpu[variable], value, atol=1e-5, err_msg=variable)
    assert np.abs(on_cpu[name] - sums.INITIAL).max() > 0.01


@pytest.fixture(scope="module")
def undivided_variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Train a table on the CPU, where its rows are not divided; return the variables."""
    directory = tmp_path_factory.mktemp("undivided")
    spec = sums.spec(OPTIMIZERS["adam_of_all_rows"])
    cpu = sums.estimator(directory, spec, use_tpu=False, batch_size=8)
    cpu.train(sums.batches(sums.IDS + sums.IDS[::-1]), steps=2)
    return sums.variables(directory)


@pytest.mark.parametrize(
    ("cores", "strategy"), [(4, "div"), (4, "mod"), (8, "div"), (8, "mod"), (1, "div")]
)
@pytest.mark.numeric
def test_division_of_the_rows_does_not_change_the_numbers(
    cores: int, strategy: str, undivided_variables: dict[str, Any], tmp_path: Path
) -> None:
    # The 7 rows are divided among 4 replicas, but not among 8: one replica would have no row.
    spec = sums.spec(OPTIMIZERS["adam_of_all_rows"], partition_strategy=strategy)
    with slope.tpu(cores):
        tpu = sums.estimator(tmp_path, spec, batch_size=8)
        tpu.train(sums.batches(sums.IDS + sums.IDS[::-1]), steps=2)
    for variable, value in sums.variables(tmp_path).items():
        np.testing.assert_allclose(
            undivided_variables[variable], value, atol=1e-5, err_msg=variable
        )


@pytest.mark.numeric
def test_devices_continue_each_others_checkpoints(tmp_path: Path) -> None:
    parameters = AdagradParameters(0.1)
    ids = sums.batches(sums.IDS)
    alone = sums.estimator(tmp_path / "alone", sums.spec(parameters), use_tpu=False)
    alone.train(ids, max_steps=6)
    for max_steps, cores in ((2, None), (4, 2), (5, 4), (6, None)):
        if cores is None:
            cpu = sums.estimator(tmp_path / "ring", sums.spec(parameters), use_tpu=False)
            cpu.train(ids, max_steps=max_steps)
        else:
            with slope.tpu(cores):
                tpu = sums.estimator(tmp_path / "ring", sums.spec(parameters))
                tpu.train(ids, max_steps=max_steps)
    expected = sums.variables(tmp_path / "alone")
    for variable, value in sums.variables(tmp_path / "ring").items():
        np.testing.assert_allclose(value, expected[variable], atol=1e-5, err_msg=variable)


@pytest.mark.numeric
def test_updates_without_accumulation_come_one_after_the_other(tmp_path: Path) -> None:
    # Row 0 is looked up in both rows of the batch; all gradients are -1/2. The accumulator grows
    # from 0.5 to 0.75 and to 1: the row is 0.5 / sqrt(0.75) + 0.5 / sqrt(1).
    parameters = AdagradParameters(1.0, initial_accumulator=0.5, use_gradient_accumulation=False)
    spec = sums.spec(parameters, initializer=sums.v1.zeros_initializer())
    with slope.tpu(2):
        sums.estimator(tmp_path, spec, batch_size=2).train(sums.batches([[0], [0]]), steps=1)
    after = sums.variables(tmp_path)
    np.testing.assert_allclose(after["words"][0], [0.5 / 0.75**0.5 + 0.5] * 2, rtol=1e-6)
    np.testing.assert_allclose(after["words/Adagrad"][:2, 0], [1.0, 0.5], rtol=1e-6)


@pytest.mark.parametrize(("use_tpu", "expected"), [(False, 9.1), (True, 6.6)])
@pytest.mark.numeric
def test_without_accumulation_each_core_sums_its_gradients_of_an_id_before_its_update(
    use_tpu: bool, expected: float, tmp_path: Path
) -> None:
    # Of the four rows of the batch, each core has two. y is 0, so the gradients of the activations
    # are -label / 4: 3, 2, 1 and 0, and those of each id are half of them.
    def labelled(params: Any) -> Any:
        labels = tf.constant([[-12.0], [-8.0], [-4.0], [0.0]])
        ids = sums.sparse([[0, 1], [1, 2], [1, 2], [2, 3]])
        return tf.data.Dataset.from_tensors(({"x": ids}, labels)).repeat()

    parameters = AdagradParameters(0.1, 0.1, use_gradient_accumulation=False)
    zeros = sums.v1.zeros_initializer()
    spec = sums.spec(parameters, combiner="mean", initializer=zeros)
    with slope.tpu(2):
        sums.estimator(tmp_path, spec, use_tpu=use_tpu).train(labelled, steps=1)
    # Id 1 is in three rows. On two cores: (1.5 + 1)^2 + 0.5^2 + 0.1; on one: 3^2 + 0.1.
    accumulators = sums.variables(tmp_path)["words/Adagrad"]
    np.testing.assert_allclose(accumulators[1], [expected] * 2, rtol=1e-6)


def rate_of_table(step: Any) -> Any:
    return tf.where(tf.equal(step, 0), 0.1, 0.0)


@pytest.mark.parametrize("use_tpu", [False, True])
@pytest.mark.parametrize(
    ("table", "expected"),
    [
        # y is the sum of the two columns of row 0, so a step adds 2 * rate * (1 - y) to y.
        ({}, [1.0, 1.0]),
        ({"learning_rate": 0.25}, [0.5, 0.75]),
        ({"learning_rate_fn": rate_of_table}, [0.2, 0.2]),
    ],
    ids=["of the optimizer", "of the table", "function of the step"],
)
@pytest.mark.numeric
def test_learning_rate_is_that_of_the_table_or_else_of_the_optimizer(
    table: dict[str, Any], expected: list[float], use_tpu: bool, tmp_path: Path
) -> None:
    spec = sums.spec(initializer=sums.v1.zeros_initializer(), **table)
    with slope.tpu(2):
        model = sums.estimator(
            tmp_path,
            spec,
            use_tpu=use_tpu,
            batch_size=2,
            iterations_per_loop=1,
            run_config={"save_checkpoints_steps": 1},
        )
        model.train(sums.batches([[0], [0]]), steps=2)
    row_sums = [sums.variables(tmp_path, step)["words"][0].sum() for step in (1, 2)]
    np.testing.assert_allclose(row_sums, expected, rtol=1e-6)


@pytest.mark.numeric
def test_gradient_multiplier_takes_the_global_step(tmp_path: Path) -> None:
    spec = sums.spec(
        initializer=sums.v1.zeros_initializer(),
        multiplier_fn=lambda step: 0.5 * tf.cast(step + 1, tf.float32),
    )
    with slope.tpu(2):
        model = sums.estimator(tmp_path, spec, batch_size=2)
        model.train(sums.batches([[0], [0]]), steps=1)
    # The learning rate and the multiplier are both 0.5, and the gradient is -1.
    np.testing.assert_allclose(sums.variables(tmp_path)["words"][0], [0.25, 0.25], rtol=1e-6)


def test_clipping_limit_bounds_the_table(tmp_path: Path) -> None:
    spec = sums.spec(initializer=sums.v1.zeros_initializer(), clipping_limit=0.125)
    with slope.tpu(2):
        model = sums.estimator(tmp_path, spec, batch_size=2)
        model.train(sums.batches([[0], [0]]), steps=1)
    np.testing.assert_allclose(sums.variables(tmp_path)["words"][0], [0.125, 0.125])


@pytest.mark.parametrize("use_tpu", [False, True])
def test_other_variables_train_beside_the_tables(use_tpu: bool, tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        y = sums.v1.layers.dense(features["x"], 1)
        loss = tf.reduce_mean((y - labels) ** 2)
        optimizer = trainer.CrossShardOptimizer(sums.v1.train.AdamOptimizer(0.01))
        train_op = optimizer.minimize(loss, sums.v1.train.get_global_step())
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    spec = sums.spec(AdagradParameters(0.1))
    with slope.tpu(2):
        model = sums.estimator(tmp_path, spec, use_tpu=use_tpu, model=model_fn)
        model.train(sums.batches(sums.IDS), steps=3)
    names = set(sums.variables(tmp_path))
    assert {"words", "words/Adagrad", "dense/kernel/Adam"} < names
    assert not any("anchor" in name for name in names)


@pytest.mark.parametrize(("cores", "compiled"), [(1, False), (2, False), (2, True)])
@pytest.mark.numeric
def test_pipelined_lookups_come_before_the_update_of_the_step_before(
    cores: int, compiled: bool, tmp_path: Path
) -> None:
    # y is the sum of the two columns of row 0, from 0, and a step adds 2 * rate * (1 - y) to y;
    # the rate is 0.25. Of a loop of three steps, the first two see y = 0, and the third sees 0.5:
    # y = 0.5 + 0.5 + 0.5 * (1 - 0.5) = 1.25. A loop of one step waits for nothing.
    spec = sums.spec(
        StochasticGradientDescentParameters(0.25),
        initializer=sums.v1.zeros_initializer(),
        pipelined=True,
    )
    with slope.tpu(cores, compiled=compiled):
        model = sums.estimator(
            tmp_path,
            spec,
            batch_size=2,
            iterations_per_loop=3,
            run_config={"save_checkpoints_steps": 3},
        )
        model.train(sums.batches([[0], [0]]), steps=4)
    row_sums = [sums.variables(tmp_path, step)["words"][0].sum() for step in (3, 4)]
    np.testing.assert_allclose(row_sums, [1.25, 1.25 - 0.5 * 0.25], rtol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.numeric
def test_a_pipelined_optimizer_of_all_rows_makes_one_update_per_step(
    compiled: bool, tmp_path: Path
) -> None:
    # A loop of one step waits for nothing, so both trainings have the same results.
    parameters = AdamParameters(0.1, lazy_adam=False, sum_inside_sqrt=False, epsilon=1e-3)
    tables = {}
    for is_pipelined in (False, True):
        model_dir = tmp_path / str(is_pipelined)
        spec = sums.spec(parameters, pipelined=is_pipelined)
        with slope.tpu(1, compiled=compiled):
            model = sums.estimator(model_dir, spec, iterations_per_loop=1)
            model.train(sums.batches(sums.IDS), steps=3)
        tables[is_pipelined] = sums.variables(model_dir)
    for name, value in tables[False].items():
        np.testing.assert_allclose(tables[True][name], value, rtol=1e-5, atol=1e-7, err_msg=name)
