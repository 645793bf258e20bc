"""The report of a training step has the size of the tensors that the step sums over replicas."""

import pytest

from tpuserve.compilation.train_step import worker

pytest.importorskip("jax")

ALL_REDUCE = """
func.func @main(%x: tensor<2x3xTYPE>) -> tensor<2x3xTYPE> {
  %sum = "stablehlo.all_reduce"(%x) ({
    ^body(%first: tensor<TYPE>, %second: tensor<TYPE>):
      %added = stablehlo.add %first, %second : tensor<TYPE>
      stablehlo.return %added : tensor<TYPE>
  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2x3xTYPE>) -> tensor<2x3xTYPE>
  return %sum : tensor<2x3xTYPE>
}
"""


@pytest.mark.parametrize(
    ("dtype", "element_bytes"),
    [("f32", 4), ("bf16", 2), ("f8E4M3FN", 1), ("i1", 1), ("complex<f32>", 8)],
)
def test_reduced_bytes_are_six_times_the_size_of_an_element(dtype: str, element_bytes: int) -> None:
    module = ALL_REDUCE.replace("TYPE", dtype).encode()
    assert worker._count_reduced_bytes(module) == 6 * element_bytes
