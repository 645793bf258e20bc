import sys
import sysconfig
from pathlib import Path

import pytest

from tpuserve.errors import InvalidSetting
from trainer.compat.source import user_program


def write_script(directory: Path, name: str = "main.py") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x = 1\n")
    return path


def make_globals(path: Path, name: str = "helper") -> dict[str, str]:
    """Return the global variables of a module, as far as UserProgram reads them."""
    return {"__name__": name, "__file__": str(path)}


def test_modules_beside_and_below_the_script_belong_to_the_program(tmp_path: Path) -> None:
    running = user_program.program_from_script(str(write_script(tmp_path)))
    assert running.owns_module({"__name__": "__main__"})
    assert running.owns_module(make_globals(tmp_path / "helper.py"))
    assert running.owns_module(make_globals(tmp_path / "parts" / "helper.py"))


def test_other_modules_and_libraries_do_not_belong_to_the_program(tmp_path: Path) -> None:
    running = user_program.program_from_script(str(write_script(tmp_path / "project")))
    assert not running.owns_module(make_globals(tmp_path / "elsewhere" / "helper.py"))
    assert not running.owns_module(
        make_globals(tmp_path / "project/.venv/lib/site-packages/helper.py")
    )
    assert not running.owns_module({"__name__": "builtins"})
    assert not running.owns_module(None)


def test_our_packages_never_belong_to_the_program(tmp_path: Path) -> None:
    root = Path(user_program.__file__).parents[3]
    running = user_program.UserProgram("main.py", directories=(root,))
    assert not running.owns_module(make_globals(root / "trainer" / "estimator.py"))
    assert running.owns_module(make_globals(root / "main.py"))


def test_modules_on_the_python_path_belong_to_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "models"))
    running = user_program.program_from_script(str(write_script(tmp_path / "project")))
    assert running.owns_module(make_globals(tmp_path / "models" / "official" / "helper.py"))


def test_directory_of_a_linked_script_is_the_directory_of_its_target(tmp_path: Path) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(write_script(tmp_path / "target"))
    assert user_program.program_from_script(str(link)).directories[0] == tmp_path / "target"


def test_path_that_is_not_a_python_file_is_refused(tmp_path: Path) -> None:
    tmp_path.joinpath("binary").write_bytes(b"\x7fELF\0\0")
    for path, message in (("none.py", "does not exist"), (".", "directory"), ("binary", "text")):
        with pytest.raises(InvalidSetting, match=message):
            user_program.program_from_script(str(tmp_path / path))


def test_process_of_a_tool_runs_no_program() -> None:
    assert "pytest" in sys.modules
    assert user_program.find_running_program(globals()) is None


def test_tool_runs_no_program_even_if_modules_come_from_python_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    script = Path(sysconfig.get_path("scripts"), "pytest")
    assert script.is_file()
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    assert user_program.find_running_program(globals()) is None


def test_main_module_that_imports_us_is_the_program(tmp_path: Path) -> None:
    main = make_globals(write_script(tmp_path), "__main__")
    running = user_program.find_running_program(main)
    assert running is not None
    assert (running.name, running.source, running.file) == (
        "main.py",
        b"x = 1\n",
        tmp_path / "main.py",
    )
    session = user_program.find_running_program({"__name__": "__main__"})
    assert session is not None
    assert session.file is None
