from collections.abc import Mapping

import pytest
from packaging.specifiers import SpecifierSet

from tpuserve.diagnosis import packages
from tpuserve.diagnosis.request import Finding, RuntimeRequest, Status

ON_TPU = RuntimeRequest("pjrt", "tpu", has_tpu=True)
WITHOUT_TPU = RuntimeRequest("", "tpu", has_tpu=False)
INSTALLED = {"tensorflow": "2.21.0", "jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42.1"}
TESTED = {
    "tensorflow": SpecifierSet(">=2.20,<2.22"),
    "jax": SpecifierSet(">=0.9,<0.11"),
    "libtpu": SpecifierSet("==0.0.42.*"),
}


def list_not_ok(
    versions: Mapping[str, str],
    request: RuntimeRequest = ON_TPU,
) -> list[Finding]:
    """Return the findings that are not ok."""
    findings = packages.check_packages(versions, TESTED, request)
    return [finding for finding in findings if finding.status is not Status.OK]


def test_tested_versions_are_no_finding() -> None:
    assert list_not_ok(INSTALLED) == []


def test_two_wheels_of_tensorflow_overwrite_each_other() -> None:
    (finding, _) = list_not_ok({**INSTALLED, "tensorflow-tpu": "2.20.0"})
    assert finding.status is Status.PROBLEM
    assert finding.message.startswith("tensorflow and tensorflow-tpu are installed together")
    assert finding.advice == (
        "Run: pip uninstall -y tensorflow tensorflow-tpu; pip install 'tensorflow<2.22,>=2.20'",
    )


def test_libtpu_and_its_nightly_overwrite_each_other() -> None:
    findings = list_not_ok({**INSTALLED, "libtpu-nightly": "0.0.42.2"})
    assert [finding.status for finding in findings] == [Status.PROBLEM]
    assert "libtpu and libtpu-nightly" in findings[0].message


@pytest.mark.parametrize("version", ["0.7.2", "0.11.0"])
def test_a_version_outside_the_tested_range_is_a_problem(version: str) -> None:
    (finding,) = list_not_ok({**INSTALLED, "jax": version})
    assert finding.status is Status.PROBLEM
    assert finding.message == f"jax {version} was not tested: tested is jax<0.11,>=0.9"
    assert finding.advice == ("Run: pip install 'jax<0.11,>=0.9'",)


def test_tensorflow_tpu_is_held_to_the_versions_of_tensorflow() -> None:
    installed = {name: version for name, version in INSTALLED.items() if name != "tensorflow"}
    (finding, _) = list_not_ok({**installed, "tensorflow-tpu": "2.18.0"})
    assert "tensorflow-tpu 2.18.0 was not tested: tested is tensorflow<2.22" in finding.message


def test_another_libtpu_than_that_of_jax_is_a_note_on_a_tpu_only() -> None:
    installed = {**INSTALLED, "libtpu": "0.0.52"}
    (finding,) = list_not_ok(installed)
    assert finding.status is Status.NOTE
    assert finding.message == "libtpu 0.0.52 is not the version for jax 0.10.2: ==0.0.42.*"
    assert list_not_ok(installed, WITHOUT_TPU) == []


def test_jax_without_libtpu_is_a_problem_on_a_tpu_and_a_note_elsewhere() -> None:
    installed = {name: version for name, version in INSTALLED.items() if name != "libtpu"}
    (finding,) = list_not_ok(installed)
    assert finding.status is Status.PROBLEM
    assert finding.message.startswith("libtpu is not installed")
    assert finding.advice == ("Run: pip install '.[tpu]'",)
    assert list_not_ok(installed, WITHOUT_TPU) == []


def test_a_missing_jax_is_a_problem_on_a_tpu_and_a_note_elsewhere() -> None:
    installed = {"tensorflow": "2.21.0"}
    assert [finding.status for finding in list_not_ok(installed)] == [Status.PROBLEM]
    assert [finding.status for finding in list_not_ok(installed, WITHOUT_TPU)] == [Status.NOTE]


def test_the_runtime_of_tensorflow_needs_the_wheel_for_tpus() -> None:
    (finding,) = list_not_ok(INSTALLED, RuntimeRequest("tensorflow", "tpu", has_tpu=True))
    assert "tensorflow-tpu is not installed" in finding.message


def test_the_tested_versions_are_those_of_the_installed_packages() -> None:
    tested = packages.find_requirements()
    versions = packages.find_versions()
    assert versions["tensorflow"] in tested["tensorflow"]
    assert "2.22.0" not in tested["tensorflow"]
    assert "0.11.0" not in tested["jax"]
