import importlib

import pytest

from trainer.compat.imports import estimator_aliases, estimator_finder
from trainer.compat.source import estimator_names


@pytest.mark.parametrize("version", [estimator_names.V1, estimator_names.V2])
def test_every_import_target_defines_its_name(version: estimator_names.Namespaces) -> None:
    estimator_finder.install()
    for names in version.values():
        for name, target in names.items():
            module, _, attribute = target.partition(":")
            assert attribute.removesuffix("V2").removesuffix("Clustering") == name
            assert hasattr(importlib.import_module(module), attribute), target


def test_no_name_is_both_supplied_and_unsupported() -> None:
    supplied = {
        f"{path}.{name}".lstrip(".") for path, names in estimator_names.V1.items() for name in names
    }
    assert not supplied & estimator_names.UNSUPPORTED.keys()


def test_parent_modules_come_before_their_submodules() -> None:
    for modules in (estimator_names.V1, estimator_names.V2, estimator_aliases.MODULES):
        paths = [""]
        for path in modules:
            assert path.rpartition(".")[0] in paths
            paths.append(path)
