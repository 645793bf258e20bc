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


def test_a_package_that_an_optional_import_names_stops_nothing(
    packages: Path, tmp_path: Path
) -> None:
    source = "try:\n    from old_package import models\nexcept ImportError:\n    models = None\n"
    assert migration_report.analyze_program(samples.write_file(tmp_path, "program.py", source)).runs
