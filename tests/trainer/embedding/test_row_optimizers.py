"""Steps of the optimizers of tables, worked out by hand."""

import pytest
import tensorflow as tf

from trainer.embedding.optimization_parameters import OptimizationParameters
from trainer.embedding.private_parameters import (
    AdagradMomentumParameters,
    MomentumParameters,
    ProximalAdagradParameters,
    ProximalYogiParameters,
    RMSPropParameters,
)
from trainer.embedding.row_optimizers import build_optimizer


def adagrad_momentum(*, use_nesterov: bool = False, beta2: float = 1) -> OptimizationParameters:
    return AdagradMomentumParameters(0.5, 0.5, use_nesterov, beta2=beta2)


def yogi(*, l1: float = 0.0, l2: float = 0.0) -> OptimizationParameters:
    return ProximalYogiParameters(2.5, 0.5, 0.75, 0.5, l1, l2)


@pytest.mark.parametrize(
    ("parameters", "row", "slots", "gradient", "expected"),
    [
        # m' = 0.5 * 4 + 1 = 3
        (MomentumParameters(0.1, 0.5), 1.0, [4.0], 1.0, [0.7, 3.0]),
        # 1 + 0.5 * 3 = 2.5
        (MomentumParameters(0.1, 0.5, True), 1.0, [4.0], 1.0, [0.75, 3.0]),
        # s' = (2 + 4) / 2 = 3, and m' = 0.5 * 0.4 + 0.1 * 2 / sqrt(3 + 1) = 0.3
        (RMSPropParameters(0.1, 0.5, 0.5, 1.0), 1.0, [2.0, 0.4], 2.0, [0.7, 3.0, 0.3]),
        # s = 1 / sqrt(3 + 1) = 0.5
        (ProximalAdagradParameters(1.0), 2.0, [3.0], 1.0, [1.5, 4.0]),
        # (1.5 - 0.5 * 1) / (1 + 0.5 * 2) = 0.5
        (ProximalAdagradParameters(1.0, 0.1, 1.0, 2.0), 2.0, [3.0], 1.0, [0.5, 4.0]),
        # 0.6 - 0.5 = 0.1 is below the penalty of 0.5.
        (ProximalAdagradParameters(1.0, 0.1, 1.0, 2.0), 0.6, [3.0], 1.0, [0.0, 4.0]),
        # v' = 5 - 0.25 * 4 = 4, m' = (2 + 2) / 2 = 2, and s = 2.5 / (sqrt(4) + 0.5) = 1
        (yogi(), 5.0, [5.0, 2.0], 2.0, [3.0, 4.0, 2.0]),
        # v' = 3 + 0.25 * 4 = 4, as v is below g^2
        (yogi(), 5.0, [3.0, 2.0], 2.0, [3.0, 4.0, 2.0]),
        # (3 - 0.5) / (1 + 0.25) = 2
        (yogi(l1=0.5, l2=0.25), 5.0, [5.0, 2.0], 2.0, [2.0, 4.0, 2.0]),
        # s = 1 / sqrt(3 + 1) = 0.5, m' = 0.5 * 2 + 0.5 = 1.5, and w' = 2 - 0.5 * 1.5
        (adagrad_momentum(), 2.0, [3.0, 2.0], 1.0, [1.25, 4.0, 1.5]),
        # 0.5 + 0.5 * 1.5 = 1.25
        (adagrad_momentum(use_nesterov=True), 2.0, [3.0, 2.0], 1.0, [1.375, 4.0, 1.5]),
        # a' = (7 + 1) / 2 = 4
        (adagrad_momentum(beta2=0.5), 2.0, [7.0, 2.0], 1.0, [1.25, 4.0, 1.5]),
    ],
)
@pytest.mark.numeric
def test_a_step_follows_the_rule_of_the_optimizer(
    parameters: OptimizationParameters,
    row: float,
    slots: list[float],
    gradient: float,
    expected: list[float],
) -> None:
    optimizer = build_optimizer(parameters, None)
    assert len(optimizer.slots) == len(slots)
    rows, new_slots = optimizer.step(
        tf.constant([[row]]),
        [tf.constant([[slot]]) for slot in slots],
        tf.constant([[gradient]]),
        tf.constant(parameters.learning_rate),
    )
    values = [float(value[0, 0]) for value in (rows, *new_slots)]
    assert values == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("parameters", "slots"),
    [
        (
            adagrad_momentum(),
            {"AdagradMomentum/Accumulator": 0.0, "AdagradMomentum/Momentum": 0.0},
        ),
        (MomentumParameters(0.1, 0.5), {"Momentum": 0.0}),
        (ProximalAdagradParameters(0.1, 0.2), {"ProximalAdagrad": 0.2}),
        (ProximalYogiParameters(), {"ProximalYogi": 1e-6, "ProximalYogi_1": 0.0}),
        (RMSPropParameters(0.1, 0.9, 0.0, 1e-3), {"RMSProp/ms": 0.0, "RMSProp/mom": 0.0}),
    ],
)
def test_slots_have_the_names_and_values_of_tensorflow(
    parameters: OptimizationParameters, slots: dict[str, float]
) -> None:
    optimizer = build_optimizer(parameters, None)
    assert {slot.suffix: slot.initial_value for slot in optimizer.slots} == slots
