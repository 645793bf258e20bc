"""Parses the error messages of TensorFlow's XLA bridge about ops that XLA cannot compile."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

LineOf: TypeAlias = Callable[[str], str | None]
"""Takes a node as "node@function"; returns the line of user code that created the node."""

# The beginning of XLA's error message about unsupported ops.
UNSUPPORTED = "Detected unsupported operations when trying to compile graph"
# Matches each op in XLA's error message about unsupported ops, such as "AsString (No registered ...
# node {{node spelled}}". If the node is in a called function, "{{function_node NAME}}" precedes it.
_OP = re.compile(
    r"(?P<op>\w+) \([^{}]*?\bnode (?:\{\{function_node [^{}]+\}\})?\{\{node (?P<node>[^{}]+)\}\}"
)

# Matches error messages about an input that XLA must know when it compiles, such as "Input 1 to
# node `shaped` with op Reshape must be a compile-time constant."
_CONSTANT = re.compile(
    r"Input (?P<input>\d+) to node [`'](?P<node>[^`']+)[`'] with op (?P<op>\w+) must be a "
    r"compile-time constant"
)
# Matches any other error about an op, such as "Failed getting HLO text: 'lengths must be equal: 2
# vs. 4", and some lines later " [[{{node split}}]]".
_FAILURE = re.compile(
    r"(?:Failed getting HLO text: ')?(?P<why>[^\n]+?)\s*(?:\n.*?)?"
    r"\[\[(?:\{\{function_node [^{}]+\}\})?\{\{node (?P<node>[^{}]+)\}\}",
    re.DOTALL,
)
_SENTENCE_END = re.compile(r"\.(?: (?=[A-Z])|$)")


@dataclass(frozen=True)
class UnsupportedOp:
    """An op that XLA cannot compile.

    Attributes:
      input_number: the index of the input that must be a compile-time constant and is not; None if
        XLA does not support the op at all.
    """

    op: str
    node: str
    input_number: int | None = None


def unknown_line(node: str) -> str | None:
    """Return None: the line of user code that created the node is not known.

    This function is the `LineOf` for a graph without information on source lines.
    """
    return None


def describe_error(error: Exception, function: str, line_of: LineOf) -> str:
    """Describe an error of TensorFlow's XLA bridge in one line, for an error message."""
    text = getattr(error, "message", None) or str(error)
    ops = [*find_unsupported_ops(text), *find_nonconstant_inputs(text)]
    if ops:
        return f"XLA refuses {'; '.join(_describe_op(op, function, line_of) for op in ops)}"
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if line), type(error).__name__)


def _describe_op(op: UnsupportedOp, function: str, line_of: LineOf) -> str:
    line = line_of(f"{op.node}@{function}")
    created = f", created at {line}" if line else ""
    number = op.input_number
    reason = "" if number is None else f", whose input {number} must be a constant"
    return f"{op.op} ({op.node!r}{created}){reason}"


def find_unsupported_ops(message: str) -> tuple[UnsupportedOp, ...]:
    """Return the ops that XLA does not support according to an error message, each once.

    The message can lack some unsupported ops of the graph, because XLA stops at the first one in a
    computation.
    """
    if UNSUPPORTED not in message:
        return ()
    matches = _OP.finditer(message[message.index(UNSUPPORTED) :])
    by_node = {match["node"]: UnsupportedOp(match["op"], match["node"]) for match in matches}
    return tuple(by_node.values())


def find_nonconstant_inputs(message: str) -> tuple[UnsupportedOp, ...]:
    """Return the ops that need a compile-time constant as an input, but got another tensor.

    Args:
      message: the error message of TensorFlow's XLA bridge. If it is about another error, the
        result is empty.
    """
    return tuple(
        UnsupportedOp(match["op"], match["node"], int(match["input"]))
        for match in _CONSTANT.finditer(message)
    )


def find_failure(message: str) -> dict[str, str]:
    """Return the node that an error of TensorFlow's XLA bridge names first → its first sentence."""
    match = _FAILURE.match(message)
    return {match["node"]: _SENTENCE_END.split(match["why"].strip())[0]} if match else {}
