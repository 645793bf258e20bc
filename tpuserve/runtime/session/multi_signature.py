"""Runs several signatures of a metagraph in one session run."""

import threading
from collections.abc import Callable, Mapping, Sequence

from tpuserve.runtime.loaded_model import Array, CancellationToken
from tpuserve.runtime.session.signature_runner import SignatureRunner
from tpuserve.saved_model.signature import Signature, find_signature

# The maximum number of combinations of signatures whose runners are cached. Clients choose the
# combinations, so the cache must be bounded.
_MAX_CACHED = 64


class MultiSignatureRunner:
    """Runs several signatures on the same inputs in one session run; thread-safe.

    Args:
      make_runner: returns a SignatureRunner for a merged signature, which has the inputs and
        outputs of several signatures.
    """

    def __init__(
        self,
        signatures: Mapping[str, Signature],
        make_runner: Callable[[Signature, Sequence[str]], SignatureRunner],
    ) -> None:
        self._signatures = signatures
        self._make_runner = make_runner
        self._runners: dict[tuple[str, ...], SignatureRunner] = {}
        self._lock = threading.Lock()

    def run(
        self,
        output_names: Mapping[str, Sequence[str]],
        inputs: Mapping[str, Array],
        timeout_ms: float | None,
        cancellation: CancellationToken | None = None,
    ) -> dict[str, dict[str, Array]]:
        """Run several signatures on the same inputs.

        The arguments, the result and the errors are those of `LoadedModel.run_multi`.
        """
        if not output_names:
            return {}
        tensors, feeds = {}, {}
        for name, aliases in output_names.items():
            signature = find_signature(self._signatures, name)
            signature.check_outputs(aliases)
            tensors[name] = {alias: signature.outputs[alias].name for alias in aliases}
            # Feed the inputs to each signature separately: in exports of TensorFlow 2, each
            # signature has its own input tensors.
            for alias, array in signature.complete(inputs).items():
                feeds[signature.inputs[alias].name] = array
        # Fetch each tensor once, even if two signatures have the same output tensor.
        fetches = {tensor for by_alias in tensors.values() for tensor in by_alias.values()}
        runner = self._runner(tuple(sorted(output_names)))
        results = runner.run(feeds, tuple(fetches), timeout_ms, cancellation)
        return {
            name: {alias: results[tensor] for alias, tensor in by_alias.items()}
            for name, by_alias in tensors.items()
        }

    def close(self) -> None:
        """Release the session. Later calls of `run` raise ModelExecutionError."""
        with self._lock:
            for runner in self._runners.values():
                runner.close()

    def _runner(self, names: tuple[str, ...]) -> SignatureRunner:
        runner = self._runners.get(names)
        if runner is None:
            merged = _merge_signatures([self._signatures[name] for name in names])
            runner = self._make_runner(merged, names)
            with self._lock:
                if len(self._runners) >= _MAX_CACHED:
                    self._runners = {}
                self._runners[names] = runner
        return runner


def _merge_signatures(signatures: Sequence[Signature]) -> Signature:
    """Merge signatures into one, so that a single session run can compute all of them."""
    inputs = {spec.name: spec for signature in signatures for spec in signature.inputs.values()}
    outputs = {spec.name: spec for signature in signatures for spec in signature.outputs.values()}
    return Signature(inputs, outputs, signatures[0].method_name)
