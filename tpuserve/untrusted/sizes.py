"""Refuses untrusted models that declare much larger tensors than their files hold.

It adds up the tensors in the file by their shapes, and the tensors that ops such as Fill make of
numbers in the file.
"""

import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from tpuserve.errors import ModelTooLarge
from tpuserve.graph.references import attribute_value, data_inputs, node_name, tensor_name
from tpuserve.saved_model.variables import ELEMENT_BYTES, shape_from_proto
from tpuserve.untrusted.program import FIRST_ARGUMENT, Program, Site

# TensorFlow inlines functions before a run, which takes minutes for 3,000 nested ones.
_MAX_DEPTH, _MAX_NODES = 100, 10_000_000
# The most elements of a tensor that are read as numbers, and the largest number that is followed.
_MAX_NUMBERS, _MOST = 64, 1 << 63
# The memory for an element of a dtype without a fixed size, and of a list of tensors.
_OBJECT_BYTES, _LIST_ENTRY_BYTES = 24, 64
_FLOAT = 1
# DataType number → the field of TensorProto with its values, and their format in tensor_content.
_NUMBERS = {
    1: ("float_val", "f"),
    2: ("double_val", "d"),
    3: ("int_val", "i"),
    9: ("int64_val", "q"),
}
_DTYPE_ATTRIBUTES = ("DstT", "dtype", "out_type", "element_dtype", "T", "Tidx")
_FIRST_ARGUMENT = {**FIRST_ARGUMENT, "BatchFunction": 0, "StatelessWhile": 0, "While": 0}

# The ops that make a tensor; the number of the group that matches is the position of the input with
# the shape or the number of elements.
_MAKERS = re.compile(
    r"(Fill|Empty|(?:Stateless)?Random(?:Uniform|StandardN|N|Gamma|Poisson|Bin)\w*|TensorArrayV[23]"
    r"|(?:Stateless)?(?:Parameterized)?TruncatedNormal\w*|NonDeterministicInts|Conv2DBackpropInput"
    r"|RaggedTensorToTensor)"
    r"|(BroadcastTo|SparseToDense|StatefulStandardNormal|TensorListRes\w+|(?:Dense)?Bincount"
    r"|Multinomial|OneHot|Tile|Resize(?:Area|Bicubic|Bilinear|NearestNeighbor)|ScaleAndTranslate)"
    r"|(ScatterNd|Stateful(?:Uniform|StandardNormalV2|Truncated|RandomBin)\w*|LinSpace"
    r"|(?:Sparse|Ragged)Bincount|UnsortedSegment\w+)"
    r"|(CropAndResize)"
)
# The same for ops whose output is at least as large as the largest element of the input.
_EXTENDERS = re.compile(r"((?:Parallel)?DynamicStitch)|(Pad|PadV2|MirrorPad)")
_FORWARDERS = re.compile(
    "Cast|EnsureShape|Enter|ExpandDims|Identity|Reshape|Snapshot|Squeeze|StopGradient"
    "|(Gather|GatherV2|Slice|StridedSlice)"
)
# The size of what these ops decode depends on the content of a string, not on its length.
_DECODERS = re.compile("Decode(AndCrop|Bmp|Compressed|Gif|Image|J|Png|WebP)|ParseTensor")


def check_sizes(program: Program, max_constant_bytes: int, directory: Path) -> None:
    """Check that the tensors that a metagraph declares do not need too much memory.

    Args:
      max_constant_bytes: the number of bytes that these tensors may need, in addition to the bytes
        of the constants that the SavedModel stores.

    Raises:
      ModelTooLarge: the tensors need more; or functions call themselves or are nested too deep, or
        an op decodes a constant, such as a picture.
    """
    sizes = _Sizes(program)
    try:
        copies = sizes.count_copies()
        declared = [each for site in sizes.run.sites for each in sizes.declared(site)]
    except _Unbounded as error:
        raise ModelTooLarge(
            f"{directory} may become too large to run: {error}. Change the model, or serve "
            f"it with --max_constant_bytes=0 if you trust it."
        ) from error
    constants = [each for each in declared if each.is_constant]
    total = sum(each.num_bytes * copies[each.site.function] - each.stored for each in constants)
    if total <= max_constant_bytes:
        # TensorFlow keeps constants, but frees what it computes for a request.
        constants = declared
        total = max((each.num_bytes - each.stored for each in declared), default=0)
    if total > max_constant_bytes:
        largest = max(constants, key=lambda each: each.num_bytes)
        raise ModelTooLarge(
            f"{directory} asks for {total:,} bytes of constants, of which {largest.site} asks for "
            f"{largest.num_bytes:,}; the limit is {max_constant_bytes:,} bytes. Keep large values "
            f"in variables, or raise --max_constant_bytes if you trust the model."
        )


class _Unbounded(Exception):
    """The error for a graph that exceeds a limit, or whose size is unknown."""


class _Declared(NamedTuple):
    site: Site
    num_bytes: int
    is_constant: bool
    stored: int = 0


class _Tensor(NamedTuple):
    """What is known of a tensor."""

    is_constant: bool = False
    numbers: tuple[float, ...] = ()
    size: int = 1
    rank: int = 0


_UNKNOWN = _Tensor()


class _Sizes:
    """Follows the numbers in the file of a metagraph to the ops that make tensors of them."""

    def __init__(self, program: Program) -> None:
        self.run = program.load()
        self._program = program
        self._known: dict[tuple[str, str], _Tensor] = {}

    def count_copies(self) -> dict[str, int]:
        """Return how often TensorFlow copies each function when it inlines all calls."""
        copies, depths = {"": 1}, {"": 0}
        calling: list[str] = []

        def visit(name: str) -> None:
            if name in calling:
                raise _Unbounded(f"function {name} calls itself")
            if name in copies:
                return
            calling.append(name)
            callers = [site.function for site, _ in self.run.callers[name]]
            for caller in callers if len(calling) <= _MAX_DEPTH else ():
                visit(caller)
            calling.pop()
            depths[name] = 1 + max(depths.get(caller, _MAX_DEPTH) for caller in callers)
            if depths[name] > _MAX_DEPTH:
                raise _Unbounded(f"its functions are nested more than {_MAX_DEPTH} deep")
            copies[name] = sum(copies[caller] for caller in callers)

        for name in self.run.callers:
            visit(name)
        num_nodes = sum(copies[site.function] for site in self.run.sites)
        if num_nodes > _MAX_NODES:
            raise _Unbounded(
                f"its functions become {num_nodes:,} nodes when they are inlined, and at most "
                f"{_MAX_NODES:,} are accepted"
            )
        return copies

    def declared(self, site: Site) -> Iterator[_Declared]:
        """Yield the tensors in the attributes of a node, and the one that it makes of numbers."""
        for proto in _tensor_protos(site.node.attr):
            yield _Declared(site, _proto_bytes(proto), True, proto.ByteSize())
        inputs = [self._find(site.function, name) for name in data_inputs(site.node)]
        is_constant = bool(inputs) and all(each.is_constant for each in inputs)
        if is_constant and _DECODERS.match(site.node.op):
            raise _Unbounded(f"{site} decodes a constant, which may have any size then")
        made = _made(site.node.op, inputs) if inputs else _UNKNOWN
        if made.size > 1:
            yield _Declared(site, made.size * _element_bytes(site.node), is_constant)

    def _find(self, function: str, reference: str) -> _Tensor:
        """Return what is known of a tensor; without recursion, because graphs are deep."""
        pending, begun = [(function, reference)], set()
        while pending:
            key = pending[-1]
            if key in self._known:
                pending.pop()
                continue
            node, sources = self._sources(*key)
            missing = dict.fromkeys(each for each in sources if each not in self._known)
            if missing and key not in begun:
                begun.add(key)
                pending += missing
                continue
            # An input that is still missing depends on the tensor itself, in a loop.
            inputs = [self._known.get(source, _UNKNOWN) for source in sources]
            if node is None:
                tensor = max(inputs, key=_weight, default=_UNKNOWN)
            else:
                tensor = _output(node, inputs)
            is_constant = all(each.is_constant for each in inputs) if inputs else tensor.is_constant
            self._known[key] = tensor._replace(is_constant=is_constant)
        return self._known[function, reference]

    def _sources(self, function: str, reference: str) -> tuple[Any, list[tuple[str, str]]]:
        """Return the node of a tensor and its inputs; for an argument, None and what calls pass."""
        arguments = self._program.arguments.get(function, {})
        if reference in arguments:
            calls = self._program.passed(self.run, function, arguments[reference], _FIRST_ARGUMENT)
            # A call that passes something unknown counts as one that passes a missing node.
            return None, [
                (call[0].function, call[0].node.input[call[1]])
                if call and call[1] < len(call[0].node.input)
                else ("", "")
                for call in calls
            ]
        node = self._program.nodes[function].get(node_name(reference))
        if node is None or (not function and tensor_name(reference) in self.run.fed):
            return None, []
        return node, [(function, name) for name in data_inputs(node)]


def _weight(tensor: _Tensor) -> float:
    return tensor.size * math.prod(tensor.numbers)


def _output(node: Any, inputs: Sequence[_Tensor]) -> _Tensor:
    """Return what is known of the output of a node, but for `is_constant` if it has inputs."""
    if node.op == "Const":
        return _Tensor(True, _proto_numbers(attribute_value(node, "value").tensor))
    forwarder = _FORWARDERS.fullmatch(node.op)
    if not forwarder or not inputs:
        return _made(node.op, inputs)._replace(numbers=_computed(node.op, inputs))
    size, numbers, rank = inputs[0].size, inputs[0].numbers, inputs[0].rank
    if node.op in ("ExpandDims", "Reshape") or attribute_value(node, "new_axis_mask").i:
        rank = 2 if rank else 0
    elif forwarder[1]:
        size, rank, numbers = 1, 0, (max(numbers),) if numbers else ()
    return _Tensor(False, numbers, size, rank)


def _made(op: str, inputs: Sequence[_Tensor]) -> _Tensor:
    """Return the size of the tensor that an op makes of numbers; `_UNKNOWN` if it makes none."""
    maker, extender = _MAKERS.fullmatch(op), _EXTENDERS.fullmatch(op)
    if maker and maker.lastindex and len(inputs) >= maker.lastindex:
        sizes = [max(int(number), 1) for number in inputs[maker.lastindex - 1].numbers]
        others = inputs[0].size if op in ("OneHot", "Tile") else 1
        is_vector = others == 1 and sum(number > 1 for number in sizes) == 1
        size = min(math.prod(sizes) * others, _MOST)
        return _Tensor(size=size, rank=min(len(sizes), 2) if is_vector else 0)
    if extender and extender.lastindex and len(inputs) >= extender.lastindex:
        return _Tensor(size=1 + int(max((0, *inputs[extender.lastindex - 1].numbers))))
    if op == "Range" and all(each.numbers for each in inputs[:3]) and len(inputs) == 3:
        start, limit, delta = (each.numbers[0] for each in inputs)
        count = math.ceil(min((limit - start) / delta, _MOST)) if delta else 1
        return _Tensor(size=max(count, 1), rank=1)
    if op in ("ConcatV2", "Pack"):
        return _Tensor(size=min(sum(each.size for each in inputs), _MOST))
    ranks = [each.rank for each in inputs]
    if op.startswith(("MatrixDiag", "BatchMatrixDiag", "Diag")) and any(ranks[:1]):
        return _Tensor(size=inputs[0].size ** 2)
    # A vector and a vector in a matrix, such as a row and a column, become a matrix.
    if all(ranks) and (op == "Einsum" or sum(ranks) > len(ranks) > 1):
        return _Tensor(size=min(math.prod(each.size for each in inputs), _MOST))
    return _UNKNOWN


def _computed(op: str, inputs: Sequence[_Tensor]) -> tuple[float, ...]:
    """Compute the elements of an output, or bounds of them; () if they are unknown."""
    numbers = [each.numbers for each in inputs]
    if op in ("ConcatV2", "Pack"):
        parts = numbers if op == "Pack" else numbers[:-1]
        return tuple(islice(chain.from_iterable(part or (1,) for part in parts), _MAX_NUMBERS))
    if op == "SelectV2":
        return max(numbers[1:], default=())
    if op == "Prod" and numbers:
        return (_clamp(math.prod(numbers[0])),)
    if op in ("Add", "AddV2", "Mul") and len(numbers) == 2 and all(numbers):
        left, right = (islice(cycle(each), max(map(len, numbers))) for each in numbers)
        return tuple(
            _clamp(a * b if op == "Mul" else a + b) for a, b in zip(left, right, strict=True)
        )
    return ()


def _clamp(number: float) -> float:
    return max(-_MOST, min(number, _MOST))


def _proto_numbers(proto: Any) -> tuple[float, ...]:
    """Return the elements of a small tensor of numbers; the last one listed fills the rest."""
    shape = shape_from_proto(proto.tensor_shape)
    if proto.dtype not in _NUMBERS or shape is None or None in shape:
        return ()
    count = math.prod(size or 0 for size in shape)
    if not 0 < count <= _MAX_NUMBERS:
        return ()
    field, code = _NUMBERS[proto.dtype]
    listed: Sequence[float] = getattr(proto, field)[:count] or (0,)
    if len(proto.tensor_content) == count * ELEMENT_BYTES[proto.dtype]:
        listed = struct.unpack(f"<{count}{code}", proto.tensor_content)
    numbers = (*listed, *[listed[-1]] * (count - len(listed)))
    return tuple(map(_clamp, numbers)) if all(map(math.isfinite, numbers)) else ()


def _proto_bytes(proto: Any) -> int:
    shape = shape_from_proto(proto.tensor_shape) or ()
    count = math.prod(1 if size is None else size for size in shape)
    inner = (tensor for variant in proto.variant_val for tensor in variant.tensors)
    return count * ELEMENT_BYTES.get(proto.dtype, _OBJECT_BYTES) + sum(map(_proto_bytes, inner))


def _element_bytes(node: Any) -> int:
    if node.op.startswith(("TensorArray", "TensorList")):
        return _LIST_ENTRY_BYTES
    dtypes = (attribute_value(node, name).type for name in _DTYPE_ATTRIBUTES)
    return ELEMENT_BYTES.get(next(filter(None, dtypes), _FLOAT), _OBJECT_BYTES)


def _tensor_protos(attributes: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the TensorProtos in the attributes of a node, and in those that it gives a function."""
    for attribute in attributes.values():
        kind = attribute.WhichOneof("value")
        if kind == "tensor":
            yield attribute.tensor
        elif kind == "func":
            yield from _tensor_protos(attribute.func.attr)
        elif kind == "list":
            yield from attribute.list.tensor
            for function in attribute.list.func:
                yield from _tensor_protos(function.attr)
