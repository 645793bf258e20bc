"""Convolutions keep their results when their dimensions are put into another order."""

import re

import numpy as np

from tpuserve.pjrt.exported_module import export_module
from tpuserve.stablehlo import cpu_convolutions, jax_internals

# The dimension numbers of the gradient of a filter: the features of the images count as the batch.
_GRADIENT = "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]"
# [rows, height, width, input features], and the gradient [rows, height, width, output features].
_MODULE = f"""
module @module {{
  func.func public @main(%images: tensor<2x4x5x3xf32>, %gradient: tensor<2x4x5x7xf32>)
      -> tensor<3x3x3x7xf32> {{
    %0 = stablehlo.convolution(%images, %gradient) dim_numbers = {_GRADIENT},
      window = {{pad = [[1, 1], [1, 1]]}}
      {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
      : (tensor<2x4x5x3xf32>, tensor<2x4x5x7xf32>) -> tensor<3x3x3x7xf32>
    return %0 : tensor<3x3x3x7xf32>
  }}
}}
"""


def test_the_features_of_all_operands_come_last() -> None:
    module = jax_internals.parse_stablehlo(_MODULE.encode())
    cpu_convolutions.transpose_convolutions(module)
    assert re.findall(r"dim_numbers = (\S.*\]), window", str(module)) == [
        "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
    ]


def test_a_gradient_of_a_filter_is_the_sum_over_rows_and_positions() -> None:
    import jax

    images = np.random.RandomState(0).randint(-4, 5, [2, 4, 5, 3]).astype(np.float32)
    gradient = np.random.RandomState(1).randint(-4, 5, [2, 4, 5, 7]).astype(np.float32)
    arguments = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (images, gradient)]
    exported = export_module(_MODULE.encode(), arguments, "cpu")
    (result,) = jax.jit(exported.call)(images, gradient)
    padded = np.pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)])
    expected = np.zeros([3, 3, 3, 7], np.float32)
    for row, column in np.ndindex(3, 3):
        window = padded[:, row : row + 4, column : column + 5]
        expected[row, column] = np.einsum("nhwi,nhwo->io", window, gradient)
    # The sums are whole numbers below 2**24, which float32 represents exactly.
    np.testing.assert_array_equal(result, expected)
