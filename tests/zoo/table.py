"""Renders the table in docs/zoo.md from the results of the examinations."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.zoo import models
from tests.zoo.examination import (
    BFLOAT16_TOLERANCE,
    COMPILED_ROWS,
    FLOAT32_TOLERANCE,
    ROWS,
    STEPS,
    TOPOLOGIES,
    Examination,
)

DOCUMENT = Path(__file__).parents[2] / "docs/zoo.md"
_SECTION = re.compile(r"(?<=<!-- found by a test run -->\n).*?(?=<!-- end -->)", re.DOTALL)

_HEADER = (
    "model",
    "saved by",
    "ops on the host",
    "float32",
    "bfloat16",
    *(f"{name.split(':')[0]}: compiled in, memory, estimate" for name in TOPOLOGIES),
    "REST, gRPC",
)


def write_results(examinations: Sequence[Examination]) -> None:
    """Write the results of examinations into the document: table rows, and failures below it.

    Other rows and failures of the document are kept.
    """
    text = DOCUMENT.read_text()
    results = {examination.model.name: examination for examination in examinations}
    rows, failures = [], []
    for model in models.ALL:
        if model.name in results:
            rows.append(_row(*_cells(results[model.name])))
            failures += _failures(results[model.name])
        else:
            rows += [line for line in text.splitlines() if line.startswith(f"| {model.name} |")]
            failures += [line for line in text.splitlines() if line.startswith(_bullet(model.name))]
    lines = [
        "",
        _row(*_HEADER),
        _row(*["---"] * len(_HEADER)),
        *rows,
        "",
        f"float32 and bfloat16: the largest absolute difference of an output of {ROWS} rows, "
        f"with a tolerance of {FLOAT32_TOLERANCE:.0e} and {BFLOAT16_TOLERANCE:.0e}, absolute and "
        f"relative. Compiled for {COMPILED_ROWS} rows, on two cores; memory and "
        "estimate, per run, are the compiler's.",
        "",
        *failures,
        "",
    ]
    DOCUMENT.write_text(_SECTION.sub(lambda _: "\n".join(lines), text))


def _failures(examination: Examination) -> list[str]:
    return [
        f"{_bullet(examination.model.name)} {step}: {' '.join(examination.failures[step].split())}"
        for step in STEPS
        if step in examination.failures
    ]


def _bullet(name: str) -> str:
    return f"- **{name}**,"


def read_results(name: str) -> list[str]:
    """Return the results of a model in the document that do not depend on the machine."""
    (row,) = (line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| {name} |"))
    return _stable([cell.strip() for cell in row.strip("|").split(" | ")])


def stable(examination: Examination) -> list[str]:
    """Return the results of an examination that do not depend on the machine."""
    return _stable(_cells(examination))


def _stable(cells: list[str]) -> list[str]:
    """Return the ops on the host, and whether the other steps passed.

    Whether bfloat16 is within its tolerance is left out: rounding depends on the processor.
    """
    names = dict(zip(_HEADER, cells, strict=True))
    on_host = names.pop("ops on the host")
    passed = [str(cell != "no") for name, cell in names.items() if name != "bfloat16"]
    return [on_host, *passed]


def _cells(examination: Examination) -> list[str]:
    on_host = ", ".join(examination.host_ops) or (
        "?" if "convert" in examination.failures else "none"
    )
    return [
        examination.model.name,
        examination.model.saved_by,
        on_host,
        _difference(examination.float32),
        _difference(examination.bfloat16),
        *(_compilation(examination, index) for index in range(len(TOPOLOGIES))),
        "no" if {"convert", "serve"} & examination.failures.keys() else "yes",
    ]


def _difference(value: float | None) -> str:
    return "no" if value is None else f"{value:.1e}"


def _compilation(examination: Examination, index: int) -> str:
    if not examination.compilations:
        return "no"
    compilation = examination.compilations[index]
    stats, num_bytes = compilation.stats, compilation.hbm_bytes
    assert stats is not None
    assert num_bytes is not None
    return f"{stats.compile_seconds:.1f} s, {num_bytes / 1e6:.1f} MB, {stats.seconds * 1e6:.0f} us"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
