"""Which op XLA refuses to compile, read from what it says."""

import re
from dataclasses import dataclass

# "... unsupported operations when trying to compile graph NAME[] on XLA_CPU_JIT: AsString (No
# registered 'AsString' OpKernel for XLA_CPU_JIT devices compatible with node {{node spelled}}..."
UNSUPPORTED = "Detected unsupported operations when trying to compile graph"
_OP = re.compile(r"(?P<op>\w+) \([^{}]*?\bnode \{\{node (?P<node>[^{}]+)\}\}")

# "Input 1 to node `shaped` with op Reshape must be a compile-time constant."
_CONSTANT = re.compile(
    r"Input (?P<input>\d+) to node [`'](?P<node>[^`']+)[`'] with op (?P<op>\w+) must be a "
    r"compile-time constant"
)


@dataclass(frozen=True)
class UnsupportedOp:
    """An op that XLA refuses.

    Attributes:
      op: its type.
      node: its name in the graph.
      input_number: the input that would have to be a constant; None where XLA has no form for
        the op at all.
    """

    op: str
    node: str
    input_number: int | None = None


def find_unsupported_ops(message: str) -> tuple[UnsupportedOp, ...]:
    """The ops that XLA has no form for, each once; none where an error is about something else.

    XLA stops at the first op of a computation that it refuses, so there may be more.
    """
    if UNSUPPORTED not in message:
        return ()
    found = _OP.finditer(message[message.index(UNSUPPORTED) :])
    return tuple({each["node"]: UnsupportedOp(each["op"], each["node"]) for each in found}.values())


def find_nonconstant_inputs(message: str) -> tuple[UnsupportedOp, ...]:
    """The ops that XLA refuses because an input of theirs is no constant."""
    return tuple(
        UnsupportedOp(each["op"], each["node"], int(each["input"]))
        for each in _CONSTANT.finditer(message)
    )
