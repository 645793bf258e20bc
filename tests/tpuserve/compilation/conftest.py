"""What compiles for a TPU needs jax and libtpu, which Python 3.10 has not."""

import importlib.util
from pathlib import Path

import pytest

_COMPILES = {
    "test_aot.py",
    "test_compiler.py::test_a_compiler_that_dies_takes_no_other_job_with_it",
    "test_compiler.py::test_what_an_interrupted_one_leaves_is_removed_without_a_word",
    "test_compiler.py::test_rubbish_is_an_outcome_and_not_a_crash",
    "test_stablehlo.py::test_a_variable_larger_than_the_machine_takes_no_memory",
    "test_stablehlo.py::test_variables_are_arguments_and_never_constants",
    "test_worker.py::test_a_worker_holds_no_tensorflow_and_says_nothing",
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
