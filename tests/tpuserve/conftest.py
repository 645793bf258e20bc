"""Skips the tests that compile for a TPU if jax or libtpu is missing, as on Python 3.10."""

import importlib.util
from pathlib import Path

import pytest

_COMPILES = {
    "test_aot.py",
    "test_compiler.py::test_a_worker_that_dies_fails_only_its_own_job",
    "test_compiler.py::test_leaked_semaphores_are_removed_without_a_warning",
    "test_compiler.py::test_an_invalid_module_is_an_error_and_no_crash",
    "test_jax_internals.py::test_an_unsupported_jax_is_an_error_that_says_what_to_install",
    "test_jax_internals.py::test_the_installed_jax_has_all_parts",
    "test_translator.py::test_a_variable_larger_than_the_machine_takes_no_memory",
    "test_translator.py::test_variables_are_arguments_and_never_constants",
    "test_worker.py::test_a_worker_imports_no_tensorflow_and_prints_nothing",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("libtpu") and importlib.util.find_spec("jax"):
        return
    for item in items:
        if Path(__file__).parent in item.path.parents and _COMPILES & {
            item.path.name,
            f"{item.path.name}::{item.name}",
        }:
            item.add_marker(pytest.mark.skip(reason="jax and libtpu are not installed"))
