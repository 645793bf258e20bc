"""Inputs from an .npz file: how they are assigned to signatures, and which are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpuserve.errors import InvalidInput, InvalidInputNames, InvalidTensor
from tpuserve.samples import npz_inputs
from tpuserve.samples.cases import cast_inputs
from tpuserve.saved_model.signature import Signature, TensorSpec

X = TensorSpec("x:0", "float32", (None, 2))
N = TensorSpec("n:0", "int32", (None,))
WORD = TensorSpec("word:0", "string", (None,))

SIGNATURES = {"a": Signature({"x": X}, {}), "b": Signature({"x": X, "n": N}, {})}


def test_arrays_come_back_by_name(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"x": np.ones([1, 2]), "b/n": np.zeros(1)}
    np.savez(tmp_path / "inputs.npz", **arrays)
    assert sorted(npz_inputs.read_npz(tmp_path / "inputs.npz")) == ["b/n", "x"]


@pytest.mark.parametrize("damage", [b"", b"no file of arrays", b"PK\x03\x04 cut"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "inputs.npz"
    path.write_bytes(damage)
    with pytest.raises(InvalidInput, match="is not an .npz file, or is damaged"):
        npz_inputs.read_npz(path)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.ones([100, 2]))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InvalidInput, match="damaged"):
        npz_inputs.read_npz(path)


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.ones([100, 2]))
    whole = bytearray(path.read_bytes())
    whole[300:310] = b"x" * 10
    path.write_bytes(whole)
    with pytest.raises(InvalidInput, match="damaged"):
        npz_inputs.read_npz(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot read .*none.npz: No such file"):
        npz_inputs.read_npz(tmp_path / "none.npz")


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.array([b"a", None], object))
    with pytest.raises(InvalidInput, match="holds Python objects"):
        npz_inputs.read_npz(tmp_path / "inputs.npz")


def test_an_array_without_a_name_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(1))
    with pytest.raises(InvalidInput, match="one array without a name"):
        npz_inputs.read_npz(tmp_path / "x.npy")


def assign_arrays(*names: str) -> Any:
    arrays = {name: np.array([number]) for number, name in enumerate(names)}
    assignment = npz_inputs.assign_to_signatures(arrays, SIGNATURES, "inputs.npz")
    return {
        name: {alias: names[pair[0]] for alias, pair in sources.items()}
        for name, sources in assignment.items()
    }


def test_an_alias_is_for_every_signature_that_is_complete_with_it() -> None:
    assert assign_arrays("x") == {"a": {"x": "x"}}
    assert assign_arrays("x", "n") == {"a": {"x": "x"}, "b": {"x": "x", "n": "n"}}


def test_an_array_for_one_signature_takes_precedence() -> None:
    assert assign_arrays("x", "b/x", "n") == {"a": {"x": "x"}, "b": {"x": "b/x", "n": "n"}}


def test_an_array_that_no_signature_uses_is_refused() -> None:
    with pytest.raises(InvalidInputNames, match=r"has 'z', which is not an input.*a: x; b: x, n"):
        assign_arrays("x", "z")
    with pytest.raises(
        InvalidInputNames, match="has 'n', but not x, which signature 'b' takes too"
    ):
        assign_arrays("n", "a/x")


def cast_array(spec: TensorSpec, array: Any) -> Any:
    arrays, notes = cast_inputs({"x": np.asarray(array)}, Signature({"x": spec}, {}), "f.npz")
    return arrays["x"], notes


def test_a_float_of_another_width_is_converted_with_a_note() -> None:
    array, notes = cast_array(X, np.ones([1, 2]))
    assert array.dtype == np.float32
    assert notes == ["f.npz: input 'x' was converted from float64 to float32"]


def test_whole_numbers_are_converted_if_they_fit() -> None:
    array, _ = cast_array(N, np.array([7], np.int64))
    assert array.dtype == np.int32
    with pytest.raises(InvalidTensor, match="do not fit into"):
        cast_array(N, np.array([2**31], np.int64))


def test_a_float_that_would_become_infinite_is_refused() -> None:
    with pytest.raises(InvalidTensor, match="do not fit into"):
        cast_array(X, np.full([1, 2], 1e39))


def test_text_and_bytes_become_bytes() -> None:
    for array in (["ä", "b"], [b"\xc3\xa4", b"b"]):
        assert cast_array(WORD, np.array(array))[0].tolist() == [b"\xc3\xa4", b"b"]


@pytest.mark.parametrize(
    ("spec", "array", "message"),
    [
        (X, np.ones([1, 2], np.int32), "is int32, and the signature takes float32"),
        (X, np.array([["a", "b"]]), "is <U1, and the signature takes float32"),
        (WORD, np.ones(1), "is float64, and the signature takes strings"),
        (X, np.ones([1, 3], np.float32), r"shape \[1, 3\], .* takes float32 \[\?, 2\]"),
        (X, np.ones(2, np.float32), r"shape \[2\], .* takes float32 \[\?, 2\]"),
    ],
)
def test_another_type_or_shape_is_refused(spec: TensorSpec, array: Any, message: str) -> None:
    with pytest.raises(InvalidTensor, match=message):
        cast_array(spec, array)


def test_inputs_have_the_same_number_of_rows() -> None:
    arrays = {"x": np.ones([2, 2], np.float32), "n": np.ones(3, np.int32)}
    with pytest.raises(InvalidTensor, match="different numbers of rows: x 2, n 3"):
        cast_inputs(arrays, SIGNATURES["b"], "f.npz")
