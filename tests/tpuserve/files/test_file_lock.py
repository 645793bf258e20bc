import os
from pathlib import Path

import pytest

from tpuserve.files.file_lock import lock_file


def test_a_directory_is_locked_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    # flock locks the open file description, so two of one process exclude each other too.
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    assert lock_file(first)
    with pytest.raises(BlockingIOError):
        lock_file(second)
    os.close(first)
    assert lock_file(second)
    os.close(second)
