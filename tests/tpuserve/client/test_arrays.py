import numpy as np
import pytest

from tpuserve.client import arrays
from tpuserve.errors import InvalidTensor
from tpuserve.saved_model.signature import Signature, TensorSpec

STRINGS = Signature({"x": TensorSpec("x:0", "string", None)}, {})


@pytest.mark.parametrize("value", [[300], [1.5], [float("nan")], [2**70], np.array([[1, -129]])])
def test_a_number_that_is_no_integer_of_the_dtype_is_said(value: object) -> None:
    with pytest.raises(OverflowError):
        arrays.convert_to_array(value, np.dtype(np.int8))


@pytest.mark.parametrize("value", [[-1, 2**64 - 1], [0.5, 2**63], [2**64], [float("inf")]])
def test_a_number_that_is_no_integer_of_64_bits_is_said(value: object) -> None:
    with pytest.raises(OverflowError):
        arrays.convert_to_array(value, np.dtype(np.uint64))


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bool", "int32", "uint64"])
@pytest.mark.parametrize("value", [[[1, None]], None, ["7"], [b"7"], [1, "nan"], [2**70, "7"]])
def test_text_and_none_are_no_numbers(value: object, dtype: str) -> None:
    with pytest.raises(TypeError, match=f"^(None|b?'7'|'nan') is no {dtype}$"):
        arrays.convert_to_array(value, np.dtype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "bool", "int32"])
def test_a_complex_number_is_refused_for_another_dtype(dtype: str) -> None:
    with pytest.raises(TypeError, match=f"a complex number is no {dtype}"):
        arrays.convert_to_array([1 + 2j], np.dtype(dtype))


def test_numbers_become_an_array_of_the_dtype() -> None:
    integers = arrays.convert_to_array([[1, -2.0]], np.dtype(np.int8))
    assert integers.dtype == np.int8
    assert integers.tolist() == [[1, -2]]
    assert arrays.convert_to_array([1, 2**64 - 1], np.dtype(np.uint64)).tolist() == [1, 2**64 - 1]
    assert arrays.convert_to_array([], np.dtype(np.int32)).shape == (0,)
    assert arrays.convert_to_array([0.5, 1], np.dtype(np.float16)).tolist() == [0.5, 1]
    assert arrays.convert_to_array([[1, 2.5]], np.dtype(np.complex64)).tolist() == [[1, 2.5]]
    assert arrays.convert_to_array([2**70], np.dtype(np.float32)).tolist() == [2.0**70]
    assert arrays.convert_to_array([True, False], np.dtype(bool)).tolist() == [True, False]


def test_text_and_bytes_may_be_in_one_list() -> None:
    array = arrays.convert_inputs({"x": [["é", b"\xff"], ["a", b"b\0"]]}, STRINGS)["x"]
    assert array.tolist() == [[b"\xc3\xa9", b"\xff"], [b"a", b"b\0"]]


@pytest.mark.slow
def test_a_long_string_does_not_lengthen_the_others() -> None:
    """An array with the memory of the longest string for each would have 4 TiB."""
    strings = ["a"] * (1 << 20) + ["b" * (1 << 20)]
    array = arrays.convert_inputs({"x": strings}, STRINGS)["x"]
    assert [len(text) for text in array[-2:]] == [1, 1 << 20]


@pytest.mark.parametrize("value", [[["a", "b"], ["c"]], ["a", ["b"]], [[["a"]], [["b", "c"]]]])
def test_lists_of_strings_have_equal_lengths(value: object) -> None:
    with pytest.raises(InvalidTensor, match="its lists have different lengths. Give nested lists"):
        arrays.convert_inputs({"x": value}, STRINGS)
