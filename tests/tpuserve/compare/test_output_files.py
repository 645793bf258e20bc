"""The results of an interrupted comparison are read again, and what is incomplete is removed."""

from pathlib import Path
from typing import Any

import pytest

from tests.tpuserve.saved_models import tf_records
from tpuserve.compare.output_files import OutputFiles
from tpuserve.compare.requests import Request
from tpuserve.compare.result import Result
from tpuserve.errors import CodedError

DESCRIPTION = {"model": "half", "source": [("a", 10)]}


def result(number: int) -> Result:
    difference = "y" if number % 2 else ""
    return Result(number, "", "predict", "s", 1.0, 2.0, "", "", (), difference)


def write(directory: Path, numbers: range, **changes: Any) -> list[int]:
    """Write the results of some requests; return the numbers of those that were there before."""
    with OutputFiles(directory, {**DESCRIPTION, **changes}) as files:
        earlier = [each.number for each in files.read_results()]
        for number in numbers:
            record = bytes([number])
            files.write(result(number), Request("", "predict", ("s",), None, record))
    return earlier


@pytest.mark.parametrize("damage", [b"", b"{", b"{}\n", b'{"number": 4}\nmore\n'])
def test_results_are_read_up_to_the_first_damaged_line(tmp_path: Path, damage: bytes) -> None:
    write(tmp_path, range(4))
    results, differing = tmp_path / "results.jsonl", tmp_path / "differing.tfrecord"
    whole = results.read_bytes()
    results.write_bytes(whole + damage)
    differing.write_bytes(differing.read_bytes() + b"a part of a record")
    assert write(tmp_path, range(4, 4)) == [0, 1, 2, 3]
    assert results.read_bytes() == whole
    assert differing.read_bytes() == tf_records(b"\1", b"\3")


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({"source": [("a", 12)]}, ""),
        ({"source": [("a", 10), ("b", 5)]}, ""),
        ({"source": [("a", 9)]}, "source"),
        ({"source": [("b", 10)]}, "source"),
        ({"source": []}, "source"),
        ({"model": "other"}, "model"),
    ],
)
def test_a_run_continues_only_the_same_comparison(
    tmp_path: Path, changes: dict[str, Any], differing: str
) -> None:
    write(tmp_path, range(2))
    if differing:
        with pytest.raises(CodedError, match=f"another comparison, which differs in: {differing}"):
            write(tmp_path, range(0), **changes)
    else:
        assert write(tmp_path, range(0), **changes) == [0, 1]


@pytest.mark.parametrize(
    ("name", "text"),
    [("notes.txt", "has files, and no results.jsonl"), ("results.jsonl", "has a damaged results")],
)
def test_a_directory_of_other_files_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text("[]\n")
    with pytest.raises(CodedError, match=text):
        write(tmp_path, range(0))


def test_a_directory_that_is_written_to_is_refused(tmp_path: Path) -> None:
    with (
        OutputFiles(tmp_path, DESCRIPTION),
        pytest.raises(CodedError, match="is in use by another process that compares"),
    ):
        write(tmp_path, range(0))


def test_requests_that_are_missing_from_their_file_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, range(4))
    (tmp_path / "differing.tfrecord").write_bytes(tf_records(b"\1"))
    with pytest.raises(CodedError, match=r"has a damaged differing\.tfrecord"):
        write(tmp_path, range(0))
