from pathlib import Path

import pytest

from tests.trainer.migration import samples
from trainer.migration.program import sources


def files(script: Path, directory: Path) -> list[str]:
    read = sources.read_program(script, (directory,))
    return [file.path.relative_to(directory).as_posix() for file in read]


def test_imports_are_followed_to_the_modules_beside_the_script(tmp_path: Path) -> None:
    script = samples.write_file(tmp_path, "main.py", "import os, click, a.b.c\nfrom d import e, f")
    samples.write_file(tmp_path, "a/__init__.py", "from . import x")
    samples.write_file(tmp_path, "a/x.py", "import main")
    samples.write_file(tmp_path, "a/b/c.py", "from ..x import y")
    samples.write_file(tmp_path, "d/e.py", "")
    samples.write_file(tmp_path, "unused.py", "")
    names = files(script, tmp_path)
    assert names[0] == "main.py"
    assert sorted(names) == ["a/__init__.py", "a/b/c.py", "a/x.py", "d/e.py", "main.py"]


def test_a_script_can_be_read_alone(tmp_path: Path) -> None:
    script = samples.write_file(tmp_path, "main.py", "import beside")
    samples.write_file(tmp_path, "beside.py", "")
    assert [file.path for file in sources.read_program(script, ())] == [script]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("import os\nprint 'x'\n", 2, "it is Python 2"),
        ("try:\n  x\nexcept A, e:\n  pass\n", 3, "it is Python 2"),
        ("x = 0777\n", 1, "it is Python 2"),
        ("def f(:\n", 1, "it is not valid Python 3"),
        ("(" * 300, None, "it is no"),
        ("x = '\0'", None, "it is no"),
    ],
)
def test_what_does_not_parse_is_one_line_that_says_where(
    tmp_path: Path, text: str, line: int | None, says: str
) -> None:
    problem = sources.read_source(samples.write_file(tmp_path, "old.py", text), "old.py").problem
    assert problem is not None
    assert line in (None, problem.line)
    assert str(problem).startswith("old.py")
    assert says in str(problem)
    assert "\n" not in str(problem)


def test_a_file_of_another_encoding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes("# coding: latin-1\nx = 'é'  # \\d\ny = '\\d'\n".encode("latin-1"))
    assert sources.read_source(path, "latin.py").problem is None


def test_a_file_that_is_no_text_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "binary.py"
    path.write_bytes(bytes(range(256)))
    assert sources.read_source(path, "binary.py").problem is not None
