"""The terminal of the documents runs commands as the documents show them."""

from pathlib import Path

from tests.documents.terminal import PORTS, Terminal


def test_log_lines_are_not_those_of_a_command_that_changes_files(tmp_path: Path) -> None:
    terminal = Terminal("", tmp_path, range(len(PORTS)))
    (tmp_path / "first.log").write_text("loading\n")
    try:
        assert terminal.run_command("touch file", "") == ("", "")
        (tmp_path / "first.log").write_text("loading\nloaded\n")
        assert terminal.run_command("ls file", "file\n") == ("loaded\n", "file\n")
    finally:
        terminal.close()
