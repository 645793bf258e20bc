"""Collects the ops that XLA refused to compile while a verification ran signatures."""

from dataclasses import dataclass, field

from tpuserve.stablehlo import xla_errors
from tpuserve.stablehlo.xla_errors import UnsupportedOp


@dataclass
class XlaRefusals:
    """The ops that XLA refused to compile in any run of a verification, without duplicates.

    Attributes:
      unsupported_ops: Node name → an op that XLA cannot compile.
      not_constant: Node name → an op with an input that XLA requires to be a constant.
    """

    unsupported_ops: dict[str, UnsupportedOp] = field(default_factory=dict)
    not_constant: dict[str, UnsupportedOp] = field(default_factory=dict)

    def record(self, error: BaseException) -> str | None:
        """Add the ops that XLA refused to compile according to the error of a run.

        Returns:
          A sentence that names the ops; None if the error has another reason.
        """
        # Prefer the text of `__cause__`. An error of tpuserve has only the first line of XLA's
        # message, while its `__cause__` has the whole message with the names of the ops.
        text = str(error.__cause__ or error)
        unsupported = xla_errors.find_unsupported_ops(text)
        not_constant = xla_errors.find_nonconstant_inputs(text)
        self.unsupported_ops.update({op.node: op for op in unsupported})
        self.not_constant.update({op.node: op for op in not_constant})
        if unsupported:
            ops = ", ".join(f"{op.op} ({op.node})" for op in unsupported)
            return f"XLA cannot compile {ops}"
        if not_constant:
            ops = ", ".join(
                f"input {op.input_number} of {op.op} ({op.node})" for op in not_constant
            )
            return f"XLA needs a constant for {ops}"
        return None
