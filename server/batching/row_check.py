"""Checks, when a model is loaded, whether the rows (examples) of a batch depend on each other.

The outputs of a row must not depend on the other rows of its batch, which belong to requests of
other clients.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from server.batching import merge
from server.batching.gain_check import RunRows
from server.config.batching_parameters import BatchingParameters
from server.servables.servable import Array, Model
from tpuserve.errors import DeadlineExceeded, TpuserveError
from tpuserve.saved_model.signature import Signature, TensorSpec

MakeRows: TypeAlias = Callable[[Model, Path, str], Mapping[str, Array]]
"""(model, its directory, signature name) → the inputs of at least two different rows."""

_LIMIT_SECONDS = 10.0
_ROWS = 3
# The precisions (distances from 1 to the next float) of the types that numpy.finfo does not
# support. `_tolerance` computes from them the difference that rounding can cause.
_PRECISIONS = {"bfloat16": 2.0**-7, "float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2}


class _NotBatchable(Exception):
    """Raised for a signature that must not be batched; the message says why."""


class RowCheck:
    """Finds the signatures of a model that must not be batched, and why.

    Args:
      make_rows: returns valid inputs for a signature. The inputs have at least two rows
        (examples), which differ.
      limit_seconds: the longest time for the check of a model, in seconds. Signatures that are
        not checked within this time are not batched.
      find_no_gain: measures a signature, and returns why batches of it would save nothing; "" if
        they save something.
    """

    def __init__(
        self,
        make_rows: MakeRows,
        limit_seconds: float = _LIMIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        find_no_gain: Callable[[RunRows, Mapping[str, Array]], str] = lambda run, rows: "",
    ) -> None:
        self._make_rows = make_rows
        self._find_no_gain = find_no_gain
        self._limit_seconds = limit_seconds
        self._clock = clock

    def __call__(
        self, model: Model, directory: Path, parameters: BatchingParameters
    ) -> dict[str, str]:
        """Find the signatures that must not be batched, except those that write, which never run.

        The method never raises an error, because a model that cannot be checked can still be served
        without batching.
        """
        deadline = self._clock() + self._limit_seconds
        reasons = {}
        for name, signature in model.signatures.items():
            if not signature.inputs or signature.write is not None:
                continue
            try:
                _check_shapes(signature)
                self._check_rows(model, directory, name, parameters, deadline)
            except _NotBatchable as error:
                reasons[name] = str(error)
            except DeadlineExceeded:
                reasons[name] = (
                    f"the check of its rows took longer than {self._limit_seconds:g} seconds"
                )
            except TpuserveError as error:
                reasons[name] = _uncheckable(f"the model refuses them: {error}")
            except Exception as error:
                reasons[name] = _uncheckable(f"{type(error).__name__}: {error}")
        return reasons

    def _check_rows(
        self,
        model: Model,
        directory: Path,
        name: str,
        parameters: BatchingParameters,
        deadline: float,
    ) -> None:
        def run(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
            remaining_seconds = deadline - self._clock()
            if remaining_seconds <= 0:
                raise DeadlineExceeded
            size = merge.count_rows(inputs)
            padded = merge.concat_and_pad([inputs], size, parameters)
            outputs = model.run(name, padded, timeout_ms=1000 * remaining_seconds)
            (part,) = merge.split_outputs(outputs, [size], parameters.padded_size(size))
            return part

        rows = self._make_rows(model, directory, name)
        size = min(merge.count_rows(rows), _ROWS, parameters.largest_batch)
        if size < 2:
            return
        no_gain = self._find_no_gain(run, rows)
        if no_gain:
            raise _NotBatchable(no_gain)
        together = run({alias: array[:size] for alias, array in rows.items()})
        for index in range(size):
            alone = run({alias: array[index : index + 1] for alias, array in rows.items()})
            for alias, array in alone.items():
                difference = _difference(array[0], together[alias][index])
                if difference:
                    raise _NotBatchable(
                        f"its rows depend on each other: output {alias} of one row {difference} in "
                        f"a batch of {size} rows"
                    )


def _check_shapes(signature: Signature) -> None:
    """Raise _NotBatchable if the first dimension of an input or output is missing or fixed."""
    for kind, specs in (("input", signature.inputs), ("output", signature.outputs)):
        for alias, spec in specs.items():
            if spec.shape == () or (spec.shape and spec.shape[0] is not None):
                raise _NotBatchable(
                    f"its {kind} {alias} has no dimension for the rows of a batch, but is {spec}"
                )
    inputs = signature.inputs.values()
    is_given = any(map(_has_open_row, inputs)) and all(spec.dtype != "string" for spec in inputs)
    for alias, spec in signature.outputs.items():
        if _has_open_row(spec) and not is_given:
            raise _NotBatchable(
                f"its output {alias} is {spec}: other rows may determine the size of a dimension"
            )


def _has_open_row(spec: TensorSpec) -> bool:
    return spec.shape is None or None in spec.shape[1:]


def _uncheckable(reason: str) -> str:
    return (
        f"whether its rows depend on each other cannot be checked with generated inputs, because "
        f"{reason}. Export the model with warm-up requests, or set batching_policy to timeout, "
        f"which batches without this check."
    )


def _difference(alone: Array, together: Array) -> str:
    """Describe how an output of a row differs between two runs; "" if rounding explains it."""
    alone, together = np.asarray(alone), np.asarray(together)
    if alone.shape != together.shape:
        return f"has the shape {list(alone.shape)} alone, and {list(together.shape)}"
    tolerance = _tolerance(alone)
    if tolerance is None:
        return "" if np.array_equal(alone, together) else "has other values"
    wide = np.complex128 if alone.dtype.kind == "c" else np.float64
    alone, together = alone.astype(wide), together.astype(wide)
    is_finite = np.isfinite(alone)
    scale = float(np.abs(alone[is_finite]).max(initial=0))
    if np.allclose(alone, together, rtol=0, atol=tolerance * scale, equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        differences = np.abs(alone - together)
    largest = float(differences[np.isfinite(differences)].max(initial=0))
    return f"differs by {largest:.3g}"


def _tolerance(array: Array) -> float | None:
    """Return the largest relative difference that rounding can cause; None for exact types."""
    precision = _PRECISIONS.get(array.dtype.name)
    if precision is None and array.dtype.kind in "fc":
        precision = float(np.finfo(array.dtype).eps)
    return None if precision is None else float(np.sqrt(precision))
