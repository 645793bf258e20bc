from pathlib import Path

import pytest

from tests.trainer.migration import samples
from tpuserve.errors import InvalidSetting
from trainer.migration.program import scripts

MAIN = "if __name__ == '__main__':\n    pass\n"


def test_of_a_directory_the_programs_are_found_and_not_their_modules(tmp_path: Path) -> None:
    samples.write_file(tmp_path, "b/train.py", "import model\n" + MAIN)
    samples.write_file(tmp_path, "b/model.py", "")
    samples.write_file(tmp_path, "a.py", "print('no main part, and imported by nobody')")
    samples.write_file(tmp_path, ".git/c.py", MAIN)
    paths = [path.relative_to(tmp_path).as_posix() for path in scripts.find_scripts(tmp_path)]
    assert paths == ["a.py", "b/train.py"]


def test_a_file_is_a_program(tmp_path: Path) -> None:
    assert scripts.find_scripts(tmp_path / "x.py") == [tmp_path / "x.py"]


def test_a_directory_without_python_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="has no Python files"):
        scripts.find_scripts(tmp_path)
