"""Checks the versions of the packages that a run on a TPU needs, for `tpuserve doctor`."""

import importlib.metadata
from collections.abc import Iterable, Mapping

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tpuserve.diagnosis.request import Finding, RuntimeRequest, note, ok, problem

CHECK = "packages"

# Wheels that install the same files. If two of them are installed, the later one has overwritten
# files of the earlier one, which is a problem to report.
_TENSORFLOW_WHEELS = ("tensorflow", "tensorflow-tpu", "tensorflow-cpu", "tf-nightly")
_LIBTPU_WHEELS = ("libtpu", "libtpu-nightly")
_PACKAGES = (
    *_TENSORFLOW_WHEELS,
    "tensorflow-text",
    "tf-keras",
    "keras",
    "jax",
    "jaxlib",
    *_LIBTPU_WHEELS,
)
# Name of a wheel → name of the package that it replaces. The tested versions of such a wheel are
# those of the replaced package, because the requirements of tpuserve and jax name no such wheel.
_REQUIRED_AS = dict.fromkeys(_TENSORFLOW_WHEELS, "tensorflow") | {"libtpu-nightly": "libtpu"}
# Package → the dependencies whose tested versions are read from the requirements of the package.
_TESTED_BY = {
    "tpuserve": ("tensorflow", "tensorflow-text", "tf-keras", "keras", "jax"),
    "jax": ("jaxlib", "libtpu"),
}


def find_versions() -> dict[str, str]:
    """Return the installed packages that matter for TPUs, as name → version."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def find_requirements() -> dict[str, SpecifierSet]:
    """Return the package versions that tpuserve and jax were tested with, as name → versions.

    They are the version requirements in the metadata of the installed packages tpuserve and jax.
    """
    tested: dict[str, SpecifierSet] = {}
    for package, names in _TESTED_BY.items():
        try:
            lines = importlib.metadata.requires(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            if requirement.name in names:
                tested.setdefault(requirement.name, requirement.specifier)
    return tested


def check_packages(
    versions: Mapping[str, str],
    tested: Mapping[str, SpecifierSet],
    request: RuntimeRequest,
) -> list[Finding]:
    """Check that the packages that a run on a TPU needs are installed in tested versions.

    Args:
      tested: the versions that tpuserve was tested with, as name → versions.
    """
    findings = [
        ok(CHECK, ", ".join(f"{name} {version}" for name, version in versions.items())),
        *_check_same_files(versions, tested),
        *_check_ranges(versions, tested, request),
        *_check_tensorflow(versions, tested, request),
        *_check_jax(versions, request),
    ]
    return findings


def _check_same_files(
    versions: Mapping[str, str], tested: Mapping[str, SpecifierSet]
) -> Iterable[Finding]:
    for wheels in (_TENSORFLOW_WHEELS, _LIBTPU_WHEELS):
        installed = [name for name in wheels if name in versions]
        if len(installed) > 1:
            tested_wheel = f"{wheels[0]}{tested.get(wheels[0], '')}"
            yield problem(
                CHECK,
                f"{' and '.join(installed)} are installed together, and overwrite each other's "
                f"files",
                f"Run: pip uninstall -y {' '.join(installed)}; pip install '{tested_wheel}'",
            )


def _check_ranges(
    versions: Mapping[str, str], tested: Mapping[str, SpecifierSet], request: RuntimeRequest
) -> Iterable[Finding]:
    for name, version in versions.items():
        required_as = _REQUIRED_AS.get(name, name)
        specifier = tested.get(required_as)
        if specifier is None or specifier.contains(version, prereleases=True):
            continue
        advice = f"Run: pip install '{required_as}{specifier}'"
        if required_as != "libtpu":
            message = f"{name} {version} was not tested: tested is {required_as}{specifier}"
            yield problem(CHECK, message, advice)
        elif request.needs_libtpu:
            jax = f"jax {versions.get('jax', '')}"
            yield note(CHECK, f"{name} {version} is not the version for {jax}: {specifier}", advice)


def _check_tensorflow(
    versions: Mapping[str, str], tested: Mapping[str, SpecifierSet], request: RuntimeRequest
) -> Iterable[Finding]:
    if not any(name in versions for name in _TENSORFLOW_WHEELS):
        yield problem(
            CHECK,
            "TensorFlow is not installed",
            f"Run: pip install 'tensorflow{tested.get('tensorflow', '')}'",
        )
    has_runtime = "tensorflow-tpu" in versions
    if request.runtime == "tensorflow" and not has_runtime:
        yield problem(
            CHECK,
            "TPUSERVE_TPU_RUNTIME=tensorflow, and tensorflow-tpu is not installed: the wheel "
            "tensorflow has no TPU runtime",
            "Unset TPUSERVE_TPU_RUNTIME to run through PJRT, or install tensorflow-tpu in place of "
            "tensorflow",
        )
    elif has_runtime and request.runtime != "tensorflow":
        yield note(
            CHECK,
            "tensorflow-tpu is installed, and its TPU runtime is not in use",
            "Set TPUSERVE_TPU_RUNTIME=tensorflow to use it, or install tensorflow in its place",
        )


def _check_jax(versions: Mapping[str, str], request: RuntimeRequest) -> Iterable[Finding]:
    if "jax" in versions and (
        not request.needs_libtpu or any(name in versions for name in _LIBTPU_WHEELS)
    ):
        return
    missing = "libtpu" if "jax" in versions else "jax"
    extra = "tpu" if request.needs_libtpu else "pjrt"
    advice = f"Run: pip install '.[{extra}]'"
    if request.needs_jax:
        yield problem(CHECK, f"{missing} is not installed; TPU graphs need it", advice)
    else:
        yield note(CHECK, f"{missing} is not installed; only PJRT devices need it", advice)
