"""Adds the ops of TensorFlow and tensorflow_text to `tpuserve/untrusted/op_families.txt`.

    python -m tools.op_families

An op that is in no family is added to "refused: not reviewed", and is printed with what a reviewer
looks at: the functions, file names and addresses among its inputs and attributes. Ops of other
TensorFlow versions stay, so that the file covers all versions that it was run with.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from tpuserve import tensorflow_internals
from tpuserve.saved_model import op_imports
from tpuserve.saved_model.op_packages import TENSORFLOW_TEXT
from tpuserve.untrusted.op_families import (
    NOT_REVIEWED,
    PATH,
    OpFamily,
    Permission,
    op_families,
    parse_families,
)

_LINE_LENGTH = 98
# Matches names of inputs and attributes by which an op may do more than compute, such as open a
# file.
_SUSPICIOUS = re.compile(
    r"file|path|dir|url|addr|prefix|pattern|target|protocol|config|module|graph|token|handle|stream"
    r"|descriptor|region|source|thread",
    re.IGNORECASE,
)


def registered_ops() -> dict[str, str]:
    """Return the ops of the installed TensorFlow: op type → the arguments that a reviewer reads."""
    from tensorflow.core.framework import op_def_pb2

    c_api = tensorflow_internals.c_api
    ops = op_def_pb2.OpList.FromString(c_api.TF_GetBuffer(c_api.TF_GetAllOpList()))
    return {op.name: _describe_arguments(op) for op in ops.op}


def unclassified_ops(registered: Iterable[str]) -> list[str]:
    """Return the op types that are in no family, or in the family that is not reviewed."""
    families = op_families()
    return sorted(
        op for op in registered if op not in families or families[op].name == NOT_REVIEWED
    )


def format_families(comment: str, families: Mapping[OpFamily, Iterable[str]]) -> str:
    """Return the content of `op_families.txt`: a comment, then each family with its sorted ops."""
    blocks = [comment]
    for family, ops in families.items():
        lines = textwrap.wrap(
            " ".join(sorted(set(ops))),
            _LINE_LENGTH,
            break_long_words=False,
            break_on_hyphens=False,
        )
        blocks.append("\n".join([f"[{family.permission.value}: {family.name}]", *lines]))
    return "\n\n".join(blocks) + "\n"


def _describe_arguments(op: Any) -> str:
    arguments = (*op.input_arg, *op.attr)
    names = [argument.name for argument in arguments if _SUSPICIOUS.search(argument.name)]
    functions = [attr.name for attr in op.attr if "func" in attr.type]
    return ", ".join([*names, *functions])


def main() -> None:
    """Add the missing ops to the file, and print them."""
    op_imports.import_ops(TENSORFLOW_TEXT)
    registered = registered_ops()
    text = PATH.read_text(encoding="utf-8")
    families = parse_families(text)
    missing = [op for op in registered if op not in op_families()]
    if missing:
        families.setdefault(OpFamily(Permission.REFUSED, NOT_REVIEWED), []).extend(missing)
    comment = text.partition("\n\n")[0]
    PATH.write_text(format_families(comment, families), encoding="utf-8")
    for op in unclassified_ops(registered):
        print(op, registered[op], sep=": ")


if __name__ == "__main__":
    main()
