import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from trainer.compat.imports import lazy_module


@pytest.fixture
def tree() -> Iterator[Any]:
    names = {"": {"dumps": "json:dumps"}, "part": {"inner": "json.decoder:"}}
    gone = {"pickle": "Use dumps.", "part.outer": "Use inner."}
    yield lazy_module.register_lazy_modules("made_up", "tf.made_up", names, gone)
    for each in ("made_up", "made_up.part"):
        del sys.modules[each]


def test_names_are_what_is_at_home(tree: Any) -> None:
    assert tree.dumps is json.dumps
    assert tree.part.inner is json.decoder
    assert dir(tree) == ["dumps", "part"]


def test_its_parts_can_be_imported(tree: Any) -> None:
    assert importlib.import_module("made_up.part") is tree.part


def test_a_name_that_is_gone_says_what_replaces_it(tree: Any) -> None:
    with pytest.raises(AttributeError, match=r"tf.made_up.pickle is not supplied. Use dumps."):
        _ = tree.pickle
    with pytest.raises(AttributeError, match=r"tf.made_up.part.outer is not supplied. Use inner."):
        _ = tree.part.outer


def test_a_misspelt_name_is_told_what_comes_near(tree: Any) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'dump'. Did you mean dumps"):
        _ = tree.dump
