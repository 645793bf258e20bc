import sys
from pathlib import Path

import pytest

from tpuserve.errors import InvalidSetting
from trainer.compat.source import program


def script(directory: Path, name: str = "main.py") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x = 1\n")
    return path


def module(path: Path, name: str = "helper") -> dict[str, str]:
    return {"__name__": name, "__file__": str(path)}


def test_modules_beside_and_below_the_script_are_the_programs(tmp_path: Path) -> None:
    found = program.program_from_script(str(script(tmp_path)))
    assert found.has({"__name__": "__main__"})
    assert found.has(module(tmp_path / "helper.py"))
    assert found.has(module(tmp_path / "parts" / "helper.py"))


def test_modules_elsewhere_and_those_of_libraries_are_not(tmp_path: Path) -> None:
    found = program.program_from_script(str(script(tmp_path / "here")))
    assert not found.has(module(tmp_path / "there" / "helper.py"))
    assert not found.has(module(tmp_path / "here/.venv/lib/site-packages/helper.py"))
    assert not found.has({"__name__": "builtins"})
    assert not found.has(None)


def test_our_own_packages_are_never_the_programs(tmp_path: Path) -> None:
    root = Path(program.__file__).parents[3]
    found = program.Program("main.py", directories=(root,))
    assert not found.has(module(root / "trainer" / "estimator.py"))
    assert found.has(module(root / "main.py"))


def test_a_users_python_path_belongs_to_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "models"))
    found = program.program_from_script(str(script(tmp_path / "here")))
    assert found.has(module(tmp_path / "models" / "official" / "helper.py"))


def test_the_directory_of_a_linked_script_is_that_of_its_target(tmp_path: Path) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(script(tmp_path / "target"))
    assert program.program_from_script(str(link)).directories[0] == tmp_path / "target"


def test_what_is_no_python_file_is_refused(tmp_path: Path) -> None:
    tmp_path.joinpath("binary").write_bytes(b"\x7fELF\0\0")
    for asked, message in (("none.py", "is not there"), (".", "directory"), ("binary", "text")):
        with pytest.raises(InvalidSetting, match=message):
            program.program_from_script(str(tmp_path / asked))


def test_a_process_of_a_tool_runs_no_program() -> None:
    assert "pytest" in sys.modules
    assert program.find_running_program(globals()) is None


def test_an_importing_main_module_is_the_program(tmp_path: Path) -> None:
    main = module(script(tmp_path), "__main__")
    found = program.find_running_program(main)
    assert found is not None
    assert (found.name, found.source, found.file) == ("main.py", b"x = 1\n", tmp_path / "main.py")
    session = program.find_running_program({"__name__": "__main__"})
    assert session is not None
    assert session.file is None
