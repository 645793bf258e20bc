"""Several signatures of a metagraph, computed in one run of the session."""

import threading
from collections.abc import Callable, Mapping, Sequence

from tpuserve.errors import InvalidInput
from tpuserve.runtime.session.signature_runner import Array, SignatureRunner
from tpuserve.saved_model import signature as signatures
from tpuserve.saved_model.signature import Signature

# Choices of signatures that are kept; clients choose them.
_MOST_KEPT = 64


class MultiSignatureRunner:
    """Runs signatures that take the same tensors; safe to use from many threads."""

    def __init__(
        self,
        known: Mapping[str, Signature],
        make: Callable[[Signature, Sequence[str]], SignatureRunner],
    ) -> None:
        """Takes the signatures of a metagraph, by name.

        Args:
          make: what runs a signature that is made of those of the names.
        """
        self._known = known
        self._make = make
        self._made: dict[tuple[str, ...], SignatureRunner] = {}
        self._lock = threading.Lock()

    def run(
        self,
        wanted: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        timeout_ms: float | None,
    ) -> dict[str, dict[str, Array]]:
        """Signature → its outputs; see `LoadedModel.run_multi`."""
        if not wanted:
            return {}
        tensors = {}
        for name, aliases in wanted.items():
            signature = signatures.find_signature(self._known, name)
            signature.check_outputs(aliases)
            tensors[name] = {alias: signature.outputs[alias].name for alias in aliases}
        # One that two signatures share is computed once.
        fetched = {tensor for each in tensors.values() for tensor in each.values()}
        found = self._entry_point(tuple(sorted(wanted))).run(inputs, tuple(fetched), timeout_ms)
        return {
            name: {alias: found[tensor] for alias, tensor in each.items()}
            for name, each in tensors.items()
        }

    def close(self) -> None:
        """Lets go of the session; `run` fails from here on."""
        with self._lock:
            for each in self._made.values():
                each.close()

    def _entry_point(self, names: tuple[str, ...]) -> SignatureRunner:
        made = self._made.get(names)
        if made is None:
            made = self._make(_joined([self._known[each] for each in names]), names)
            with self._lock:
                if len(self._made) >= _MOST_KEPT:
                    self._made = {}
                self._made[names] = made
        return made


def _joined(parts: Sequence[Signature]) -> Signature:
    """One signature with the outputs of all, each under the name of its tensor.

    Raises:
      InvalidInput: they do not take the same tensors.
    """
    first = parts[0]
    for each in parts:
        if _fed(each) != _fed(first):
            raise InvalidInput("Input tensor must be the same for all Signatures.")
    outputs = {spec.name: spec for each in parts for spec in each.outputs.values()}
    return Signature(first.inputs, outputs, first.method_name, first.defaults)


def _fed(signature: Signature) -> dict[str, str]:
    return {alias: spec.name for alias, spec in signature.inputs.items()}
