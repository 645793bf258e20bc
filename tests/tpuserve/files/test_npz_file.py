"""A damaged .npz file gives a ValueError, however it is damaged."""

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tpuserve.files.npz_file import read_arrays


@pytest.mark.parametrize(
    ("offset", "change"),
    [
        pytest.param(8, 0x1, id="encrypted"),
        pytest.param(10, 0x63, id="unknown compression"),
    ],
)
def test_a_changed_directory_of_the_zip_file_is_damaged(
    tmp_path: Path, offset: int, change: int
) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.ones(2))
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\1\2") + offset] = change
    path.write_bytes(content)
    with pytest.raises(ValueError, match="encrypted|compression"):
        read_arrays(path)


def test_a_header_that_is_cut_is_damaged(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'shape': (((\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("x.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)
    with pytest.raises(ValueError, match="."):
        read_arrays(tmp_path / "a.npz")


def test_damaged_compressed_data_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.ones(2))
    content = bytearray(path.read_bytes())
    # The compressed data begin behind the member's name and a field of 20 bytes.
    start = content.index(b"x.npy") + len(b"x.npy") + 20
    content[start : start + 4] = b"\xff" * 4
    path.write_bytes(content)
    with pytest.raises(ValueError, match="decompressing"):
        read_arrays(path)
