from typing import Any

import pytest

from trainer.embedding import optimization_parameters as parameters
from trainer.embedding import private_parameters


def test_defaults_are_those_of_tensorflow() -> None:
    adam = parameters.AdamParameters(0.1)
    assert (adam.beta1, adam.beta2, adam.epsilon) == (0.9, 0.999, 1e-08)
    assert (adam.lazy_adam, adam.sum_inside_sqrt, adam.use_gradient_accumulation) == (True,) * 3
    ftrl = parameters.FtrlParameters(0.1)
    assert (ftrl.learning_rate_power, ftrl.initial_accumulator_value) == (-0.5, 0.1)
    assert parameters.AdagradParameters(0.1).initial_accumulator == 0.1


def test_arguments_have_the_order_of_tensorflow() -> None:
    adagrad = parameters.AdagradParameters(0.1, 0.2, False, -1.0, 1.0, 0.01, True)
    assert not adagrad.use_gradient_accumulation
    assert (adagrad.clip_weight_min, adagrad.clip_weight_max) == (-1.0, 1.0)
    assert adagrad.weight_decay_factor == 0.01
    sgd = parameters.StochasticGradientDescentParameters(0.1, False, -1.0)
    assert (sgd.use_gradient_accumulation, sgd.clip_weight_min) == (False, -1.0)


@pytest.mark.parametrize(
    ("class_name", "arguments", "message"),
    [
        ("AdagradParameters", {"initial_accumulator": 0}, "more than 0"),
        ("AdamParameters", {"beta1": 1.0}, "beta1 is 1.0"),
        ("AdamParameters", {"epsilon": 0.0}, "epsilon is 0.0"),
        ("AdamParameters", {"lazy_adam": False, "use_gradient_accumulation": False}, "lazy_adam"),
        ("FtrlParameters", {"learning_rate_power": 0.5}, "at most 0"),
        ("FtrlParameters", {"initial_accumulator_value": -1.0}, "at least 0"),
        ("FtrlParameters", {"l2_regularization_strength": -1.0}, "at least 0"),
        (
            "StochasticGradientDescentParameters",
            {"use_gradient_accumulation": False, "clip_gradient_max": 1.0},
            "Clipping needs",
        ),
    ],
)
def test_invalid_values_are_refused(
    class_name: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(parameters, class_name)(0.1, **arguments)


@pytest.mark.parametrize(
    ("class_name", "arguments", "message"),
    [
        ("AdagradMomentumParameters", {"momentum": 0.9, "epsilon": 0.0}, "epsilon is 0.0"),
        ("AdagradMomentumParameters", {"momentum": 0.9, "exponent": -1}, "exponent is -1"),
        ("ProximalAdagradParameters", {"initial_accumulator": 0.0}, "more than 0"),
        ("ProximalAdagradParameters", {"l1_regularization_strength": -1.0}, "at least 0"),
        ("ProximalYogiParameters", {"beta2": 1.0}, "beta2 is 1.0"),
        ("ProximalYogiParameters", {"l2_regularization_strength": -1.0}, "at least 0"),
    ],
)
def test_invalid_values_of_private_parameters_are_refused(
    class_name: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(private_parameters, class_name)(0.1, **arguments)


def test_arguments_of_private_parameters_have_the_order_of_tensorflow() -> None:
    momentum = private_parameters.MomentumParameters(0.1, 0.9, True, False, -1.0)
    assert (momentum.use_nesterov, momentum.clip_weight_min) == (True, -1.0)
    rms_prop = private_parameters.RMSPropParameters(0.1, 0.9, 0.5, 1e-3, False)
    assert (rms_prop.momentum, rms_prop.use_gradient_accumulation) == (0.5, False)


def test_ftrl_accumulators_may_be_zero_if_allowed() -> None:
    ftrl = parameters.FtrlParameters(
        0.1, initial_accumulator_value=0.0, allow_zero_accumulator=True
    )
    assert ftrl.initial_accumulator_value == 0.0
