import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from trainer.compat.imports import install_names


@pytest.fixture
def root() -> Iterator[Any]:
    names = {"": {"dumps": "json:dumps"}, "part": {"inner": "json.decoder:"}}
    unsupported = {"pickle": "Use dumps.", "part.outer": "Use inner."}
    yield install_names.register_lazy_modules("made_up", "tf.made_up", names, unsupported)
    for name in ("made_up", "made_up.part"):
        del sys.modules[name]


def test_names_are_imported_from_their_targets(root: Any) -> None:
    assert root.dumps is json.dumps
    assert root.part.inner is json.decoder
    assert dir(root) == ["dumps", "part"]


def test_submodules_can_be_imported(root: Any) -> None:
    assert importlib.import_module("made_up.part") is root.part


def test_error_of_an_unsupported_name_says_what_replaces_it(root: Any) -> None:
    with pytest.raises(AttributeError, match=r"tf.made_up.pickle is not supplied. Use dumps."):
        _ = root.pickle
    with pytest.raises(AttributeError, match=r"tf.made_up.part.outer is not supplied. Use inner."):
        _ = root.part.outer


def test_error_of_a_misspelt_name_suggests_similar_names(root: Any) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'dump'. Did you mean dumps"):
        _ = root.dump
