import copy
import json
from pathlib import Path
from typing import Any

import pytest

import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.training import HParams, parse_values


def _hparams() -> HParams:
    return HParams(rate=0.1, steps=10, name="adam", fast=False, sizes=[8, 4], decay=None)


def test_values_are_attributes() -> None:
    hparams = _hparams()
    assert (hparams.rate, hparams.sizes, "rate" in hparams, "other" in hparams) == (
        0.1,
        [8, 4],
        True,
        False,
    )
    assert hparams.values() == {
        "rate": 0.1, "steps": 10, "name": "adam", "fast": False, "sizes": [8, 4], "decay": None,
    }  # fmt: skip
    assert copy.deepcopy(hparams).values() == hparams.values()


def test_parsed_values_have_their_types() -> None:
    hparams = _hparams().parse("rate=1,steps=20, name=sgd ,fast=true,sizes=[3, 5,7],decay=0.5")
    assert hparams.values() == {
        "rate": 1.0, "steps": 20, "name": "sgd", "fast": True, "sizes": [3, 5, 7], "decay": 0.5,
    }  # fmt: skip
    assert isinstance(hparams.rate, float)
    assert _hparams().parse("sizes[1]=9").sizes == [8, 9]
    assert _hparams().parse("").rate == 0.1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("rat=1", "Did you mean rate"),
        ("steps=1.5", "steps is of type int and cannot be '1.5'"),
        ("fast=maybe", "fast is of type bool and cannot be 'maybe'"),
        ("rate=1,rate=2", "set more than once"),
        ("sizes=3", "Use a list"),
        ("rate=[1]", "Use a single value, no list"),
        ("sizes[5]=1", r"has 2 values, but sizes\[5\] was set"),
        ("rate", "Cannot parse hyperparameters 'rate' from 'rate' on"),
        ("sizes[0]=[1]", "assigns a list to one index"),
    ],
)
def test_wrong_assignments_are_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        _hparams().parse(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 1.5), ("steps", "3"), ("steps", True), ("name", 3), ("fast", 1), ("rate", "x")],
)
def test_a_value_of_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(
        InvalidSetting, match=f"Hyperparameter {name} is of type .* and cannot be {value!r}"
    ):
        _hparams().set_hparam(name, value)


def test_values_convert_from_and_to_dicts_and_json() -> None:
    hparams = _hparams().override_from_dict({"rate": 1, "sizes": (1, 2)})
    assert (hparams.rate, hparams.sizes) == (1.0, [1, 2])
    assert json.loads(hparams.to_json()) == hparams.values()
    assert _hparams().parse_json(hparams.to_json()).values() == hparams.values()


def test_hyperparameters_are_added_and_removed() -> None:
    hparams = HParams()
    hparams.add_hparam("depth", 3)
    assert (hparams.depth, hparams.get("depth"), hparams.get("width", 7)) == (3, 3, 7)
    hparams.add_hparam("decay", 0.5)
    assert hparams.parse("decay=1").decay == 1.0
    with pytest.raises(InvalidSetting, match="depth is taken or reserved"):
        hparams.add_hparam("depth", 4)
    with pytest.raises(InvalidSetting, match="values is taken or reserved"):
        HParams(values=1)
    with pytest.raises(InvalidSetting, match="empty list"):
        HParams(sizes=[])
    with pytest.raises(InvalidSetting, match="depth is of type int and cannot be 'x'"):
        hparams.get("depth", "x")
    hparams.del_hparam("depth")
    assert not hasattr(hparams, "depth")


def test_unknown_names_may_be_ignored() -> None:
    assert parse_values("a=1,b=2", {"a": int}, ignore_unknown=True) == {"a": 1}
    assert parse_values("a[2]=1,a[0]=3", {"a": int}) == {"a": {2: 1, 0: 3}}


def test_an_estimator_accepts_hparams_as_params(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        return programs.slope_model_fn(features, labels, mode, {"rate": params.rate})

    config = trainer.RunConfig(trainer.TPUConfig(2), model_dir=str(tmp_path))
    hparams = HParams(rate=0.5)
    estimator = trainer.TPUEstimator(
        model_fn, config=config, params=hparams, train_batch_size=2, use_tpu=False
    )
    estimator.train(lambda params: programs.ones(batch_size=params.batch_size)(), max_steps=2)
    assert estimator.get_variable_value("w") == 0.75
    assert hparams.values() == {"rate": 0.5}
