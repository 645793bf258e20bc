"""The usable memory is the machine's, or the limit of the control group if less."""

import os
from pathlib import Path

import pytest

from server.process.memory_limit import usable_memory_bytes

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("processes_groups", "files", "expected"),
    [
        (None, {}, MACHINE),
        ("0::/\n", {"memory.max": "max\n"}, MACHINE),
        ("0::/\n", {"memory.max": "4096000\n"}, 4096000),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "5000000\n"}, 5000000),
        ("2:cpu:/x\n4:memory:/x\n", {"memory/x/memory.limit_in_bytes": "7000000\n"}, 7000000),
        ("4:memory:/elsewhere\n", {"memory/memory.limit_in_bytes": "8000000\n"}, 8000000),
    ],
)
def test_least_limit_applies(
    processes_groups: str | None, files: dict[str, str], expected: int, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / "cgroups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if processes_groups is not None:
        (tmp_path / "self").write_text(processes_groups)
    assert usable_memory_bytes(tmp_path / "cgroups", tmp_path / "self") == expected


def test_memory_of_this_process_is_known() -> None:
    assert 0 < usable_memory_bytes() <= MACHINE
