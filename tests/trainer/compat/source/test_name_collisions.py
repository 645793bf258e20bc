import subprocess
import sys
from pathlib import Path

import pytest

from trainer.compat.source import user_program


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Write a program that keeps its modules in a package `trainer`."""
    sources = {
        "main.py": "from trainer import task",
        "trainer/__init__.py": "",
        "trainer/model.py": "weight = 3",
        "trainer/parts/deep.py": "depth = 4",
        "trainer/task.py": "import trainer.model\nimport trainer.parts.deep as deep\n"
        "from . import model\n"
        "print(trainer.model is model, model.weight, deep.depth, trainer.__path__)",
    }
    for name, source in sources.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return tmp_path


def test_a_script_without_suffix_beside_the_program_is_no_module(tmp_path: Path) -> None:
    (tmp_path / "server").write_text("#!/bin/sh\n")
    assert user_program.resolve_module_name("server.app", [tmp_path]) == "server.app"


@pytest.mark.parametrize("arguments", ["main.py", "-m trainer.task"])
def test_program_imports_its_own_package_that_has_the_name_of_ours(
    arguments: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    # `python -m tpuserve` would put the working directory before installed packages.
    command = [str(Path(sys.executable).with_name("tpuserve")), "run", *arguments.split()]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert process.stderr == ""
    assert process.stdout == f"True 3 4 ['{project / 'trainer'}']\n"


def test_module_that_the_program_does_not_define_keeps_its_name(tmp_path: Path) -> None:
    assert (
        user_program.resolve_module_name("trainer.estimator.estimator", [tmp_path])
        == "trainer.estimator.estimator"
    )
    assert user_program.resolve_module_name("numpy.linalg", [tmp_path]) == "numpy.linalg"
    ours = Path(user_program.__file__).parents[3]
    assert (
        user_program.resolve_module_name("trainer.estimator.estimator", [ours])
        == "trainer.estimator.estimator"
    )
