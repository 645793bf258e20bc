"""Transposes the convolutions of a StableHLO module to the dimension order that is fast on CPUs.

On a CPU, XLA has fast kernels for convolutions whose batch dimension is first and whose feature
dimension is last.
"""

from collections.abc import Sequence
from typing import Any

from tpuserve.stablehlo import jax_internals

_DIMENSIONS = "dimension_numbers"
# Names of the attributes of a convolution that do not depend on the order of its dimensions. They
# are copied to the new convolution.
_OTHERS = (
    "window_strides",
    "padding",
    "lhs_dilation",
    "rhs_dilation",
    "window_reversal",
    "feature_group_count",
    "batch_group_count",
    "precision_config",
)


def transpose_convolutions(module: Any) -> None:
    """Transpose the operands and results of all convolutions in an MLIR module, in place.

    Afterwards, each convolution has inputs and outputs of shape [batch, spatial dimensions,
    features], and a filter of shape [spatial dimensions, input features, output features].
    """
    from jaxlib.mlir import ir

    with module.context, ir.Location.unknown():
        for operation in jax_internals.find_operations(
            module, lambda candidate: candidate.name == "stablehlo.convolution"
        ):
            _transpose(operation)


def _transpose(convolution: Any) -> None:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    numbers = stablehlo.ConvDimensionNumbers(convolution.attributes[_DIMENSIONS])
    images = [
        numbers.input_batch_dimension,
        *numbers.input_spatial_dimensions,
        numbers.input_feature_dimension,
    ]
    filters = [
        *numbers.kernel_spatial_dimensions,
        numbers.kernel_input_feature_dimension,
        numbers.kernel_output_feature_dimension,
    ]
    results = [
        numbers.output_batch_dimension,
        *numbers.output_spatial_dimensions,
        numbers.output_feature_dimension,
    ]
    order = list(range(len(images)))
    if images == filters == results == order:
        return
    last, spatial = order[-1], order[1:-1]
    result_type = ir.RankedTensorType(convolution.results[0].type)
    shape = [result_type.shape[dimension] for dimension in results]
    attributes = {
        name: convolution.attributes[name] for name in _OTHERS if name in convolution.attributes
    }
    attributes[_DIMENSIONS] = stablehlo.ConvDimensionNumbers.get(
        0, last, spatial, order[-2], last, order[:-2], 0, last, spatial
    )
    with ir.InsertionPoint(convolution):
        image, kernel = convolution.operands
        replacement = ir.Operation.create(
            convolution.name,
            results=[ir.RankedTensorType.get(shape, result_type.element_type)],
            operands=[_permute(image, images), _permute(kernel, filters)],
            attributes=attributes,
        )
        result = _permute(replacement.results[0], [results.index(number) for number in order])
    convolution.results[0].replace_all_uses_with(result)
    convolution.erase()


def _permute(value: Any, permutation: Sequence[int]) -> Any:
    """Add an op that transposes a tensor; return its result."""
    from jaxlib.mlir import ir

    if list(permutation) == list(range(len(permutation))):
        return value
    tensor = ir.RankedTensorType(value.type)
    shape = [tensor.shape[dimension] for dimension in permutation]
    transpose = ir.Operation.create(
        "stablehlo.transpose",
        results=[ir.RankedTensorType.get(shape, tensor.element_type)],
        operands=[value],
        attributes={"permutation": ir.DenseI64ArrayAttr.get(list(permutation))},
    )
    return transpose.results[0]
