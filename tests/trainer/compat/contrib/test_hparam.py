import copy
import json
from pathlib import Path
from typing import Any

import pytest

import trainer
from tests.trainer import programs
from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.training import HParams, parse_values

pytestmark = pytest.mark.slow


def _hparams() -> HParams:
    return HParams(rate=0.1, steps=10, name="adam", fast=False, sizes=[8, 4], decay=None)


def test_values_are_attributes() -> None:
    found = _hparams()
    assert (found.rate, found.sizes, "rate" in found, "other" in found) == (
        0.1,
        [8, 4],
        True,
        False,
    )
    assert found.values() == {
        "rate": 0.1, "steps": 10, "name": "adam", "fast": False, "sizes": [8, 4], "decay": None,
    }  # fmt: skip
    assert copy.deepcopy(found).values() == found.values()


def test_a_text_sets_values_in_their_types() -> None:
    found = _hparams().parse("rate=1,steps=20, name=sgd ,fast=true,sizes=[3, 5,7],decay=0.5")
    assert found.values() == {
        "rate": 1.0, "steps": 20, "name": "sgd", "fast": True, "sizes": [3, 5, 7], "decay": 0.5,
    }  # fmt: skip
    assert isinstance(found.rate, float)
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
def test_a_text_that_is_wrong_is_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        _hparams().parse(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 1.5), ("steps", "3"), ("steps", True), ("name", 3), ("fast", 1), ("rate", "x")],
)
def test_a_value_of_another_kind_is_refused(name: str, value: Any) -> None:
    with pytest.raises(
        InvalidSetting, match=f"Hyperparameter {name} is of type .* and cannot be {value!r}"
    ):
        _hparams().set_hparam(name, value)


def test_values_come_from_dicts_and_json_and_go_there() -> None:
    found = _hparams().override_from_dict({"rate": 1, "sizes": (1, 2)})
    assert (found.rate, found.sizes) == (1.0, [1, 2])
    assert json.loads(found.to_json()) == found.values()
    assert _hparams().parse_json(found.to_json()).values() == found.values()


def test_names_are_added_and_taken_away() -> None:
    found = HParams()
    found.add_hparam("depth", 3)
    assert (found.depth, found.get("depth"), found.get("width", 7)) == (3, 3, 7)
    with pytest.raises(InvalidSetting, match="depth is taken or reserved"):
        found.add_hparam("depth", 4)
    with pytest.raises(InvalidSetting, match="values is taken or reserved"):
        HParams(values=1)
    with pytest.raises(InvalidSetting, match="empty list"):
        HParams(sizes=[])
    with pytest.raises(InvalidSetting, match="depth is of type int and cannot be 'x'"):
        found.get("depth", "x")
    found.del_hparam("depth")
    assert not hasattr(found, "depth")


def test_unknown_names_may_be_left_out() -> None:
    assert parse_values("a=1,b=2", {"a": int}, ignore_unknown=True) == {"a": 1}
    assert parse_values("a[2]=1,a[0]=3", {"a": int}) == {"a": {2: 1, 0: 3}}


def test_an_estimator_takes_them_as_its_params(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        return programs.slope_model_fn(features, labels, mode, {"rate": params.rate})

    config = trainer.RunConfig(trainer.TPUConfig(2), model_dir=str(tmp_path))
    given = HParams(rate=0.5)
    made = trainer.TPUEstimator(
        model_fn, config=config, params=given, train_batch_size=2, use_tpu=False
    )
    made.train(lambda params: programs.ones(batch_size=params.batch_size)(), max_steps=2)
    assert made.get_variable_value("w") == 0.75
    assert given.values() == {"rate": 0.5}
