"""tf.contrib.quantize.python.graph_matcher, which finds patterns of ops in a graph."""

import abc
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tpuserve.errors import InvalidSetting

__all__ = ["GraphMatcher", "MatchResult", "OneofPattern", "OpTypePattern", "Pattern"]

_ANY = "*"
_MAX_UNORDERED = 8


class MatchResult:
    """The ops and tensors that the parts of a pattern have matched."""

    def __init__(self) -> None:
        self._found: dict[Pattern, tuple[Any, Any]] = {}
        self._names: dict[str, Pattern] = {}

    def add(self, pattern: "Pattern", op: Any, tensor: Any) -> None:
        """Record a match; the tensor is the output of the op that the parent's op reads."""
        self._found[pattern] = op, tensor
        if pattern.name is not None:
            self._names[pattern.name] = pattern

    def merge_from(self, other_match_result: "MatchResult") -> None:
        """Add the matches of another result."""
        self._found |= other_match_result._found
        self._names |= other_match_result._names

    def get_op(self, pattern_or_name: "Pattern | str") -> Any:
        """Return the op that a part of the pattern has matched; None if there is none."""
        return self._get(pattern_or_name)[0]

    def get_tensor(self, pattern_or_name: "Pattern | str") -> Any:
        """Return the tensor that a part of the pattern has matched; None if there is none."""
        return self._get(pattern_or_name)[1]

    def _get(self, pattern: "Pattern | str | None") -> tuple[Any, Any]:
        if isinstance(pattern, str):
            pattern = self._names.get(pattern)
        return self._found.get(pattern, (None, None)) if pattern is not None else (None, None)


class Pattern(abc.ABC):
    """A pattern of ops."""

    name: str | None = None

    @abc.abstractmethod
    def match(self, op: Any, tensor: Any) -> MatchResult | None:
        """Return what the pattern has matched, beginning with an op; None if it does not match."""


class OpTypePattern(Pattern):
    """Matches ops by their types, and by patterns of their inputs.

    Args:
      op_type: one type, several such as "Relu|Relu6", or "*" for all.
      inputs: patterns, or types of ops; None matches any inputs.
      ordered_inputs: whether the inputs have to come in this order.
    """

    def __init__(
        self,
        op_type: str,
        name: str | None = None,
        inputs: Sequence[Pattern | str] | None = None,
        ordered_inputs: bool = True,
    ) -> None:
        self.name, self._types, self._is_ordered = name, op_type.split("|"), ordered_inputs
        self._inputs = [
            pattern if isinstance(pattern, Pattern) else OpTypePattern(pattern)
            for pattern in inputs or ()
        ]
        if len(self._inputs) > _MAX_UNORDERED and not ordered_inputs:
            raise InvalidSetting(
                f"OpTypePattern got {len(self._inputs)} inputs in any order. Give at most "
                f"{_MAX_UNORDERED}."
            )

    def match(self, op: Any, tensor: Any) -> MatchResult | None:
        """Match an op and its inputs."""
        if self._types != [_ANY] and op.type not in self._types:
            return None
        if self._inputs and len(op.inputs) != len(self._inputs):
            return None
        orders = [self._inputs] if self._is_ordered else itertools.permutations(self._inputs)
        for patterns in orders:
            result = MatchResult()
            result.add(self, op, tensor)
            if _match_inputs(patterns, op, result):
                return result
        return None


def _match_inputs(patterns: Iterable[Pattern], op: Any, result: MatchResult) -> bool:
    """Match patterns with the inputs of an op, add what they match to a result, and say if all do.

    No patterns match any inputs.
    """
    for pattern, tensor in zip(patterns, op.inputs, strict=False):
        part = pattern.match(tensor.op, tensor)
        if part is None:
            return False
        result.merge_from(part)
    return True


class OneofPattern(Pattern):
    """Matches the first of several patterns that matches."""

    def __init__(self, sub_patterns: Sequence[Pattern]) -> None:
        self._patterns = sub_patterns

    def match(self, op: Any, tensor: Any) -> MatchResult | None:
        """Match an op with each pattern, until one matches."""
        results = (pattern.match(op, tensor) for pattern in self._patterns)
        return next((result for result in results if result is not None), None)


class GraphMatcher:
    """Finds the ops that a pattern matches."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern

    def match_op(self, op: Any) -> MatchResult | None:
        """Return what the pattern matches from an op on; None if it does not match."""
        return self._pattern.match(op, None)

    def match_ops(self, ops: Iterable[Any]) -> Iterator[MatchResult]:
        """Yield what the pattern matches, for each op that it matches."""
        return filter(None, map(self.match_op, ops))

    def match_graph(self, graph: Any) -> Iterator[MatchResult]:
        """Yield what the pattern matches in a graph."""
        return self.match_ops(graph.get_operations())
