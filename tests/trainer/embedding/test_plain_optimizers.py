"""Where no id repeats, tables are trained as TensorFlow's own optimizers train dense variables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.backends.tpu import slope
from tests.trainer.embedding import sums
from trainer.embedding.optimization_parameters import (
    AdagradParameters,
    AdamParameters,
    FtrlParameters,
    OptimizationParameters,
    StochasticGradientDescentParameters,
)
from trainer.embedding.private_parameters import (
    MomentumParameters,
    ProximalAdagradParameters,
    RMSPropParameters,
)

pytestmark = pytest.mark.slow

v1 = tf.compat.v1
STEPS = 3
# Each id occurs once in each batch, so that the gradient of the table is dense.
IDS = [[0, 1], [2, -1], [4, 3], [6, 5]]


def apply_with(optimizer: Any) -> Callable[[Any, Any], Any]:
    """Return a function that applies the gradient of a variable with a v1 optimizer."""
    return lambda variable, gradient: optimizer.apply_gradients([(gradient, variable)])


def apply_adam(variable: Any, gradient: Any) -> Any:
    """Apply a gradient with TensorFlow's Adam; powers of 0 switch the bias correction off."""
    momenta, velocities = (v1.get_variable(name, initializer=sums.INITIAL * 0) for name in "mv")
    return tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=momenta.handle,
        v=velocities.handle,
        beta1_power=0.0,
        beta2_power=0.0,
        lr=0.1,
        beta1=0.9,
        beta2=0.99,
        epsilon=1e-3,
        grad=gradient,
    )


def apply_rms_prop(variable: Any, gradient: Any) -> Any:
    """Apply a gradient with TensorFlow's RMSProp, whose mean squares start at 0."""
    squares, momenta = (v1.get_variable(name, initializer=sums.INITIAL * 0) for name in "sm")
    return tf.raw_ops.ResourceApplyRMSProp(
        var=variable.handle,
        ms=squares.handle,
        mom=momenta.handle,
        lr=0.1,
        rho=0.9,
        momentum=0.5,
        epsilon=1e-3,
        grad=gradient,
    )


CASES: dict[str, tuple[OptimizationParameters, Callable[[], Callable[[Any, Any], Any]]]] = {
    "sgd": (
        StochasticGradientDescentParameters(0.5),
        lambda: apply_with(v1.train.GradientDescentOptimizer(0.5)),
    ),
    "adagrad": (
        AdagradParameters(0.1, initial_accumulator=0.2),
        lambda: apply_with(v1.train.AdagradOptimizer(0.1, initial_accumulator_value=0.2)),
    ),
    "adam": (
        AdamParameters(0.1, beta2=0.99, epsilon=1e-3, sum_inside_sqrt=False),
        lambda: apply_adam,
    ),
    "momentum": (
        MomentumParameters(0.1, 0.9, use_nesterov=True),
        lambda: apply_with(v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True)),
    ),
    "proximal adagrad": (
        ProximalAdagradParameters(0.1, 0.2, 0.01, 0.1),
        lambda: apply_with(v1.train.ProximalAdagradOptimizer(0.1, 0.2, 0.01, 0.1)),
    ),
    "rms prop": (RMSPropParameters(0.1, 0.9, 0.5, 1e-3), lambda: apply_rms_prop),
    "ftrl": (
        FtrlParameters(
            0.1,
            learning_rate_power=-0.7,
            initial_accumulator_value=0.2,
            l1_regularization_strength=0.01,
            l2_regularization_strength=0.1,
            beta=0.3,
        ),
        lambda: apply_with(
            v1.train.FtrlOptimizer(
                0.1,
                learning_rate_power=-0.7,
                initial_accumulator_value=0.2,
                l1_regularization_strength=0.01,
                l2_regularization_strength=0.1,
                beta=0.3,
            )
        ),
    ),
}


def train_dense_variable(make_apply: Callable[[], Callable[[Any, Any], Any]]) -> Any:
    """Train the table of `sums.model_fn` as a variable; return its value after the steps."""
    lookups = np.zeros([len(IDS), sums.ROWS], np.float32)
    for row, ids in enumerate(IDS):
        for number in ids:
            if number >= 0:
                lookups[row, number] = 1 / sum(row_id >= 0 for row_id in ids)
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.get_variable("words", initializer=sums.INITIAL, use_resource=True)
        with v1.variable_scope("", use_resource=True):
            y = tf.reduce_sum(tf.matmul(lookups, table), axis=1)
            (gradient,) = tf.gradients(tf.reduce_mean((y - 1.0) ** 2 / 2.0), table)
            train_op = make_apply()(table, gradient)
        session.run(v1.global_variables_initializer())
        for _ in range(STEPS):
            session.run(train_op)
        return session.run(table)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.numeric
def test_tables_without_repeated_ids_equal_variables_of_tensorflows_optimizers(
    name: str, tmp_path: Path
) -> None:
    parameters, make_apply = CASES[name]
    with slope.tpu(2):
        sums.estimator(tmp_path, sums.spec(parameters)).train(sums.batches(IDS), steps=STEPS)
    expected = train_dense_variable(make_apply)
    # Both compute in float32. Three steps with entries around 1 have rounding errors below 1e-6.
    np.testing.assert_allclose(sums.variables(tmp_path)["words"], expected, atol=1e-5)
    assert np.abs(expected - sums.INITIAL).min() > 1e-3
