"""Requests are merged into one batch, and each gets the outputs of its own rows."""

import numpy as np
import pytest

from server.batching import merge
from server.config.batching_parameters import BatchingParameters
from server.servables.servable import Array
from tpuserve.errors import Code, CodedError, InvalidTensor

PLAIN = BatchingParameters(max_batch_size=4)
ALLOWED = BatchingParameters(max_batch_size=4, allowed_batch_sizes=(2, 4))
RAGGED = BatchingParameters(max_batch_size=4, pad_variable_length_inputs=True)


def floats(values: object) -> dict[str, Array]:
    return {"x": np.array(values, np.float32)}


def join(slices: list[dict[str, Array]], parameters: BatchingParameters) -> list[object]:
    size = sum(len(task_slice["x"]) for task_slice in slices)
    return merge.concat_and_pad(slices, size, parameters)["x"].tolist()


def test_rows_are_put_below_each_other() -> None:
    assert join([floats([1, 2]), floats([3])], PLAIN) == [1, 2, 3]


def test_batch_is_filled_with_its_first_row() -> None:
    assert join([floats([[1, 2]]), floats([[3, 4], [5, 6]])], ALLOWED) == [
        [1, 2],
        [3, 4],
        [5, 6],
        [1, 2],
    ]


def test_first_row_is_that_of_the_first_request_that_has_one() -> None:
    assert join([floats([]), floats([7])], ALLOWED) == [7, 7]


def test_request_that_needs_no_change_is_not_copied() -> None:
    inputs = floats([1, 2])
    assert merge.concat_and_pad([inputs], 2, ALLOWED)["x"] is inputs["x"]


def test_rows_are_padded_with_the_first_element_of_their_tensor() -> None:
    assert join([floats([[9, 2]]), floats([[5, 6, 7], [1, 2, 3]])], RAGGED) == [
        [9, 2, 9],
        [5, 6, 7],
        [1, 2, 3],
    ]


def test_every_dimension_is_padded() -> None:
    wide, high = floats([[[1, 2]]]), floats([[[3], [4]]])
    assert join([wide, high], RAGGED) == [[[1, 2], [1, 1]], [[3, 3], [4, 3]]]


def test_strings_are_padded_too_and_empty_rows_with_nothing() -> None:
    one = {"x": np.array([[b"a"]], object)}
    none = {"x": np.empty((1, 0), object)}
    assert join([one, none], RAGGED) == [[b"a"], [b""]]
    assert join([floats([[5]]), floats([[]])], RAGGED) == [[5], [0]]


def test_rows_are_counted_and_must_agree() -> None:
    one, two = np.ones(1), np.ones((2, 3))
    assert merge.count_rows({"a": two, "b": two}) == 2
    with pytest.raises(
        InvalidTensor, match="^Batching Run\\(\\) input tensors must have equal 0th-dimension size$"
    ):
        merge.count_rows({"a": one, "b": two})
    with pytest.raises(InvalidTensor, match="at least one dimension"):
        merge.count_rows({"a": np.array(1.0)})


def test_outputs_are_cut_and_padding_is_left_out() -> None:
    parts = merge.split_outputs({"y": np.arange(4)}, [1, 2], run_size=4)
    assert [part["y"].tolist() for part in parts] == [[0], [1, 2]]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (np.array(1), "Batched output tensor has 0 dimensions"),
        (
            np.arange(3),
            "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension "
            "sizes of the input tensors",
        ),
    ],
)
def test_output_without_a_row_for_each_row_is_refused(output: Array, text: str) -> None:
    with pytest.raises(
        CodedError, check=lambda error: error.code is Code.FAILED_PRECONDITION
    ) as caught:
        list(merge.split_outputs({"y": output}, [1, 2], run_size=4))
    assert (caught.value.code, str(caught.value)) == (Code.FAILED_PRECONDITION, text)


def groups(is_padded: bool, *requests: dict[str, Array]) -> list[list[int]]:
    layouts = [merge.layout(request, is_padded) for request in requests]
    return merge.group_by_layout(range(len(requests)), layouts)


def test_requests_with_other_types_or_shapes_are_grouped_apart() -> None:
    wide, narrow = floats([[1, 2]]), floats([[1]])
    double = {"x": np.ones((1, 2), np.float64)}
    assert groups(False, wide, narrow, double, wide) == [[0, 3], [1], [2]]
    assert groups(True, wide, narrow, double, floats([1])) == [[0, 1], [2], [3]]
