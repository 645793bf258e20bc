from pathlib import Path

import pytest

from tests.trainer.migration import samples
from trainer.migration import migration_report
from trainer.migration.program import package_script, sources
from trainer.migration.program.package_script import PackageScript


def part_of(directory: Path, name: str, source: str) -> PackageScript | None:
    script = samples.write_file(directory, name, source)
    return package_script.find_package(sources.read_source(script, name))


@pytest.mark.parametrize(
    ("name", "source", "module"),
    [
        ("census/task.py", "from . import model", "census.task"),
        ("census/deep/task.py", "from ..parts import model", "census.deep.task"),
        ("census/__main__.py", "from . import model", "census"),
        ("trainer/task.py", "import trainer.model as model", "trainer.task"),
        ("trainer/task.py", "from trainer import model", "trainer.task"),
    ],
)
def test_a_script_that_needs_its_package_is_a_module(
    name: str, source: str, module: str, tmp_path: Path
) -> None:
    assert part_of(tmp_path, name, source) == PackageScript(module, tmp_path)


@pytest.mark.parametrize(
    "source",
    ["import model", "try:\n    from . import model\nexcept ImportError:\n    import model"],
)
def test_a_script_that_does_without_its_package_is_none(source: str, tmp_path: Path) -> None:
    assert part_of(tmp_path, "census/task.py", source) is None


def test_a_package_begins_at_its_outermost_init_file(tmp_path: Path) -> None:
    for path in ("models/__init__.py", "models/census/__init__.py"):
        samples.write_file(tmp_path, path, "")
    part = part_of(tmp_path, "models/census/task.py", "from . import model")
    assert part == PackageScript("models.census.task", tmp_path)


def test_a_module_of_a_package_is_run_from_where_the_package_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples.write_file(tmp_path, "trainer/model.py", "import tensorflow as tf\ntf.flags\ntf.lites")
    samples.write_file(tmp_path, "trainer/task.py", "import trainer.model\nfrom . import model")
    monkeypatch.chdir(tmp_path)
    program_report = migration_report.analyze_program(Path("trainer/task.py"))
    assert program_report.command == "tpuserve run -m trainer.task"
    assert [finding.written for finding in program_report.findings] == [
        "tensorflow",
        "tf.flags",
        "tf.lites",
    ]

    monkeypatch.chdir(tmp_path / "trainer")
    assert (
        migration_report.analyze_program(Path("task.py")).command
        == "cd .. && tpuserve run -m trainer.task"
    )
