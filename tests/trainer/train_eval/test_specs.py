from typing import Any

import pytest
import tensorflow as tf

from trainer.exporting.exporters import FinalExporter
from trainer.train_eval.specs import EvalSpec, TrainSpec


def input_fn() -> Any:
    raise AssertionError("nobody calls it")


def receiver_fn() -> Any:
    raise AssertionError("nobody calls it")


def test_the_defaults_are_the_originals() -> None:
    train, evaluation = TrainSpec(input_fn), EvalSpec(input_fn)
    assert (train.max_steps, train.hooks, train.saving_listeners) == (None, (), ())
    assert (evaluation.steps, evaluation.name, evaluation.hooks) == (100, None, ())
    assert (evaluation.exporters, evaluation.start_delay_secs) == ((), 120)
    assert evaluation.throttle_secs == 600


def test_hooks_and_listeners_may_come_from_iterators() -> None:
    hook = tf.compat.v1.train.SessionRunHook()
    listener = tf.compat.v1.train.CheckpointSaverListener()
    hooks: Any = map(lambda hook: hook, [hook])
    listeners: Any = iter([listener])
    train = TrainSpec(input_fn, hooks=hooks, saving_listeners=listeners)
    assert (train.hooks, train.saving_listeners) == ((hook,), (listener,))
    hooks = filter(None, [hook, None])
    assert EvalSpec(input_fn, hooks=hooks).hooks == (hook,)


def test_one_exporter_is_as_good_as_a_list_of_one() -> None:
    exporter = FinalExporter("final", receiver_fn)
    assert EvalSpec(input_fn, exporters=exporter).exporters == (exporter,)


@pytest.mark.parametrize("max_steps", [0, -1])
def test_max_steps_must_be_positive(max_steps: int) -> None:
    with pytest.raises(ValueError, match=f"max_steps is {max_steps}"):
        TrainSpec(input_fn, max_steps=max_steps)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"steps": 0}, "EvalSpec steps is 0"),
        (
            {"start_delay_secs": -1},
            "start_delay_secs is -1. Give a number that is at least 0",
        ),
        ({"throttle_secs": -0.5}, "throttle_secs is -0.5"),
        ({"exporters": [FinalExporter("a", receiver_fn)] * 2}, "two or more exporters .* 'a'"),
        ({"exporters": FinalExporter("", receiver_fn)}, "name that is None or empty; found ''"),
    ],
)
def test_impossible_evaluations_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        EvalSpec(input_fn, **changes)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"input_fn": 1}, "EvalSpec input_fn is 1, which cannot be called"),
        ({"name": 1}, "EvalSpec name is 1"),
        ({"hooks": ["x"]}, "EvalSpec hooks holds 'x'. Give tf.compat.v1.train.SessionRunHook"),
        ({"exporters": 1}, "an Exporter, an iterable of Exporter, or None; found 1"),
        ({"exporters": ["x"]}, r"found \['x'\]"),
        ({"exporters": FinalExporter(1, receiver_fn)}, "a string name; found 1"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_are_type_errors(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        EvalSpec(**{"input_fn": input_fn, **changes})


def test_a_train_spec_checks_its_types() -> None:
    with pytest.raises(TypeError, match="TrainSpec input_fn is None"):
        TrainSpec(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="TrainSpec hooks holds 1"):
        TrainSpec(input_fn, hooks=[1])
    with pytest.raises(TypeError, match="TrainSpec saving_listeners holds 'x'. Give CheckpointS"):
        TrainSpec(input_fn, saving_listeners=["x"])


def test_a_spec_has_what_a_named_tuple_has() -> None:
    spec = TrainSpec(input_fn, max_steps=5)
    assert TrainSpec._fields == ("input_fn", "max_steps", "hooks", "saving_listeners")
    assert spec._replace(max_steps=7)._asdict()["max_steps"] == spec[1] + 2 == 7
    function, *others = spec
    assert (function, others) == (input_fn, [5, (), ()])
    with pytest.raises(ValueError, match="TrainSpec has no field steps"):
        spec._replace(steps=3)


def test_a_float_is_as_many_steps_as_it_takes_to_reach_it() -> None:
    half: Any = 2.5
    assert (TrainSpec(input_fn, half).max_steps, EvalSpec(input_fn, half).steps) == (3, 3)
