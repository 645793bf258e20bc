"""A SavedModel → the report of its verification."""

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from tpuserve import validation
from tpuserve.errors import InvalidSetting, InvalidType
from tpuserve.export import debug_info
from tpuserve.verification import metagraphs
from tpuserve.verification.hazards import metagraph_hazards, node_placement
from tpuserve.verification.inputs import cases
from tpuserve.verification.inputs.cases import InputCases
from tpuserve.verification.metagraphs import MetaGraphPair
from tpuserve.verification.model_pair import ModelPair
from tpuserve.verification.report import Report, Run, VerifiedSignature
from tpuserve.verification.xla_refusals import XlaRefusals

Progress = Callable[[int, int, str], None]


def verify(
    directory: str | bytes | os.PathLike[str],
    *,
    inputs: str | os.PathLike[str] | None = None,
    signatures: Sequence[str] | None = None,
    batch_sizes: Sequence[int] | None = None,
    atol: float = 1e-5,
    rtol: float = 1e-5,
    seed: int = 0,
    runs: int = 5,
    progress: Progress | None = None,
) -> Report:
    """Whether the {serve, tpu} metagraph does what {serve} does, and what a TPU would not like.

    Both are run in this process on the same inputs, the TPU one lowered to the CPU and compiled
    by XLA. What fails is in the report: a signature that cannot be run does not stop the others.

    Example:
      report = tpuserve.verification.verify("/models/half/1")
      assert report.passed, report.signatures

    Args:
      directory: holds a saved_model.pb with both metagraphs.
      inputs: an .npz file; its arrays are named by input, or "signature/input". Signatures that
        it has nothing for run on the SavedModel's warm-up records, else on generated inputs.
      signatures: those to run; None for all.
      batch_sizes: to run at, for signatures with an open first dimension. None takes the rows of
        the given inputs; else what the batch functions allow; else 1 and 8.
      atol, rtol: a float passes where |baseline - candidate| <= atol + rtol * |baseline|.
      seed: of generated inputs.
      runs: how often each runs after its first time, for the median of its wall time.
      progress: called with the number of runs done, of all, and what comes next.

    Raises:
      SavedModelNotFound, DamagedSavedModel, MetagraphNotFound: see the message.
      SignatureNotFound: a name that neither metagraph has.
      InvalidInput: a file of inputs that does not fit.
      InvalidSetting, InvalidType: a tolerance, a number of runs or a batch size that cannot be, or
        an argument of another type than it takes.
    """
    _check(
        atol,
        rtol,
        () if batch_sizes is None else batch_sizes,
        () if signatures is None else signatures,
        runs,
        seed,
    )
    of_file = None if inputs is None else _path("inputs", inputs)
    both = metagraphs.read_metagraph_pair(_path("directory", directory))
    wanted = both.signatures(tuple(signatures or ()))
    failures = {name: metagraphs.describe_difference(name, both) for name in wanted}
    comparable = {name: each for name, each in wanted.items() if failures[name] is None}
    found = cases.collect_cases(
        both.directory,
        both.baseline.meta_graph_def,
        comparable,
        inputs=of_file,
        batch_sizes=tuple(dict.fromkeys(batch_sizes or ())),
        allowed_batch_sizes=both.allowed_batch_sizes,
        seed=seed,
    )
    refused = XlaRefusals()
    results = _run(both, found, atol, rtol, runs, refused, progress)
    verified = tuple(
        VerifiedSignature(name, results.get(name, ()), failures[name]) for name in wanted
    )
    of_candidate = both.candidate.meta_graph_def
    placed = {
        name: node_placement.place_nodes(of_candidate, name)
        for name in wanted
        if name in both.candidate.described.signatures
    }
    return Report(
        directory=both.directory,
        atol=atol,
        rtol=rtol,
        seed=seed,
        signatures=verified,
        hazards=metagraph_hazards.find_hazards(
            of_candidate,
            placed,
            {name: both.candidate.described.signatures[name] for name in placed},
            allowed_batch_sizes=both.allowed_batch_sizes,
            refused=refused,
            warm_up=both.warm_up,
            verified=verified,
            line_of=debug_info.load_line_lookup(both.directory),
        ),
        notes=found.notes,
    )


def _run(
    both: MetaGraphPair,
    found: InputCases,
    atol: float,
    rtol: float,
    runs: int,
    refused: XlaRefusals,
    progress: Progress | None,
) -> dict[str, tuple[Run, ...]]:
    total = sum(len(each) for each in found.by_signature.values())
    tell = progress or (lambda done, total, what: None)
    tell(0, total, "loading")
    pair = ModelPair(
        metagraphs.load_baseline(both.directory),
        metagraphs.load_candidate(both.directory),
        atol,
        rtol,
        runs,
        refused,
    )
    results: dict[str, tuple[Run, ...]] = {}
    done = 0
    try:
        for name, of_signature in found.by_signature.items():
            results[name] = ()
            for case in of_signature:
                tell(done, total, f"{name}, batch size {case.batch_size or 'fixed'}")
                results[name] += (pair.run(name, case),)
                done += 1
    finally:
        pair.close()
    tell(done, total, "done")
    return results


def _check(atol: Any, rtol: Any, batch_sizes: Any, signatures: Any, runs: Any, seed: Any) -> None:
    for name, value in (("atol", atol), ("rtol", rtol)):
        message = f"{name} is {value!r}. Give a number of at least 0."
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidType(message)
        if not (math.isfinite(value) and float(value) >= 0):
            raise InvalidSetting(message)
    if not _is_list(batch_sizes):
        raise InvalidType(f"batch_sizes is {batch_sizes!r}. Give a list of whole numbers, or None.")
    for size in batch_sizes:
        validation.check_integer("A size of batch_sizes", size, least=1)
    if not _is_list(signatures) or not all(isinstance(each, str) for each in signatures):
        raise InvalidType(f"signatures is {signatures!r}. Give a list of names, or None.")
    validation.check_integer("runs", runs, least=0)
    validation.check_integer("seed", seed, least=0)


def _is_list(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)


def _path(name: str, value: Any) -> Path:
    if not isinstance(value, str | bytes | os.PathLike):
        raise InvalidType(f"{name} is {value!r}. Give a path.")
    return Path(os.fsdecode(value))
