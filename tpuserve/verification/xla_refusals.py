"""What XLA refused while signatures ran."""

from dataclasses import dataclass, field

from tpuserve.runtime import xla_errors
from tpuserve.runtime.xla_errors import UnsupportedOp


@dataclass
class XlaRefusals:
    """The ops that XLA refused, each once.

    Attributes:
      unsupported: node name → an op that XLA has no form for.
      not_constant: node name → an op with an input that would have to be a constant.
    """

    unsupported: dict[str, UnsupportedOp] = field(default_factory=dict)
    not_constant: dict[str, UnsupportedOp] = field(default_factory=dict)

    def read(self, error: BaseException) -> str | None:
        """Remembers what an error says that XLA refuses.

        Returns:
          The same in one sentence; None where the error is about something else.
        """
        # Ours carry the first line only; the runtime's own is behind them.
        text = str(error.__cause__ or error)
        unsupported, not_constant = (
            xla_errors.find_unsupported_ops(text),
            xla_errors.find_nonconstant_inputs(text),
        )
        self.unsupported.update({each.node: each for each in unsupported})
        self.not_constant.update({each.node: each for each in not_constant})
        if unsupported:
            ops = ", ".join(f"{each.op} ({each.node})" for each in unsupported)
            return f"XLA cannot compile {ops}"
        if not_constant:
            ops = ", ".join(
                f"input {each.input_number} of {each.op} ({each.node})" for each in not_constant
            )
            return f"XLA needs a constant for {ops}"
        return None
