from pathlib import Path

import pytest

from tests.trainer.migration import samples
from trainer.migration import migration_report, text_report

OLD = """
    import tensorflow as tf
    from tensorflow.contrib import gan

    def export():
        tf.gone_name()

    if is_old:
        tf.gone_behind_a_condition

    print(tf.gfile)
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "site-packages"
    samples.write_file(directory, "old_package/__init__.py", "")
    samples.write_file(directory, "old_package/models.py", OLD)
    samples.write_file(directory, "old_package/unused.py", "import tensorflow as tf\ntf.gone_too\n")
    samples.write_file(directory, "new_package.py", "import tensorflow as tf\ntf.nn.relu\n")
    monkeypatch.syspath_prepend(str(directory))
    return directory


def test_what_an_installed_package_breaks_is_said(packages: Path, tmp_path: Path) -> None:
    source = "import new_package\nfrom old_package import models\n"
    program_report = migration_report.analyze_program(
        samples.write_file(tmp_path, "program.py", source)
    )
    [package] = program_report.packages
    assert (package.name, package.tf1) == (
        "old_package",
        "old_package/models.py:3 names tensorflow.contrib.gan",
    )
    assert {finding.written: (finding.file, finding.stops) for finding in package.findings} == {
        "tensorflow.contrib.gan": ("old_package/models.py", True),
        "tf.gone_name": ("old_package/models.py", False),
        "tf.gone_behind_a_condition": ("old_package/models.py", False),
    }
    assert not program_report.runs
    lines = [str(line) for line in text_report.format_lines(program_report)]
    assert "Installed package old_package" in lines
    assert any("old_package/models.py:3" in line and "tensorflow-gan" in line for line in lines)
    assert (
        text_report.to_dict([program_report])["programs"][0]["packages"][0]["name"] == "old_package"
    )


LAZY = """
    import tensorflow as tf
    from typing import TYPE_CHECKING
    from etils import epy

    with epy.lazy_imports():
        import nobody_has_lazy
        from lazy_package import testing
    with epy.lazy_imports(error_callback="Install it."):
        import nobody_has_this_either
    if TYPE_CHECKING:
        import nobody_has_types
    try:
        from lazy_package import fast
    except ImportError:
        fast = None
    if tf.__version__ < "2":
        from lazy_package import old

    def load():
        from lazy_package import unused
        import nobody_has_functions
"""
MISSING = "import tensorflow as tf\nimport nobody_has_this\n"


def test_only_what_an_import_of_a_package_runs_is_read(packages: Path, tmp_path: Path) -> None:
    samples.write_file(packages, "lazy_package/__init__.py", LAZY)
    samples.write_file(packages, "etils/epy.py", "")
    for module in ("testing", "fast", "old", "unused", "conftest", "lazy_test"):
        samples.write_file(packages, f"lazy_package/{module}.py", MISSING)
    assert samples.report_of(tmp_path, "import lazy_package").runs
    assert not samples.report_of(tmp_path, "import lazy_package.testing").runs


@pytest.mark.parametrize("module", ["package", "package.a", "package.b", "package.c.d"])
def test_a_module_runs_what_it_imports_and_its_packages(
    module: str, packages: Path, tmp_path: Path
) -> None:
    samples.write_file(packages, "package/__init__.py", "from . import a")
    samples.write_file(packages, "package/a.py", "import package.b")
    samples.write_file(packages, "package/b.py", MISSING)
    samples.write_file(packages, "package/c/d.py", "")
    [package] = samples.report_of(tmp_path, f"import {module}").packages
    assert [finding.file for finding in package.findings] == ["package/b.py"]


def test_a_package_is_read_once_for_each_version(packages: Path, tmp_path: Path) -> None:
    def missing() -> list[str]:
        [package] = samples.report_of(tmp_path, "from old_package import models").packages
        return [finding.written for finding in package.findings if finding.stops]

    information = packages / "old_package-1.0.dist-info"
    information.mkdir()
    assert missing() == ["tensorflow.contrib.gan"]
    samples.write_file(packages, "old_package/models.py", "import tensorflow as tf\ntf.gone_later")
    assert missing() == ["tensorflow.contrib.gan"]
    information.rename(packages / "old_package-2.0.dist-info")
    assert missing() == ["tf.gone_later"]


def test_a_package_is_read_where_nothing_can_be_kept(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUSERVE_CACHE_DIR", str(samples.write_file(tmp_path, "file", "")))
    assert not samples.report_of(tmp_path, "from old_package import models").runs


def test_a_damaged_file_of_the_cache_is_replaced(
    packages: Path, tmp_path: Path, own_cache: Path
) -> None:
    assert not samples.report_of(tmp_path, "from old_package import models").runs
    [file] = (own_cache / "migrate").iterdir()
    file.write_bytes(b"damaged")
    assert not samples.report_of(tmp_path, "from old_package import models").runs


def test_a_package_that_an_optional_import_names_stops_nothing(
    packages: Path, tmp_path: Path
) -> None:
    source = "try:\n    from old_package import models\nexcept ImportError:\n    models = None\n"
    assert migration_report.analyze_program(samples.write_file(tmp_path, "program.py", source)).runs
