"""Renders the tables in docs/conformance.md from the results of a test run."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tests.conformance.exports import kinds, models, promises, served_model
from tests.conformance.exports.model import ROWS, TRAINING_STEPS
from tpuserve.compilation.chips import DEFAULT_TOPOLOGIES

DOCUMENT = Path(__file__).parents[3] / "docs/conformance.md"
_SECTION = re.compile(r"(?<=<!-- found by a test run -->\n).*?(?=<!-- end -->)", re.DOTALL)

# A result of the table: the names of a kind of export, a model and a promise.
Cell: TypeAlias = tuple[str, str, str]

ALL = frozenset(
    (kind.name, model, promise)
    for kind in kinds.ALL
    for model in kind.models
    for promise in promises.ALL
)


def render(checks: Mapping[Cell, str]) -> str:
    """Render the tables.

    Args:
      checks: The kind, the model and the promise of each check that passed → a remark or "".
    """
    sizes = " and ".join(map(str, kinds.ALLOWED_BATCH_SIZES))
    lines = [
        "",
        _row("kind of export", "models", *promises.ALL),
        _row("---", "---", *([":-:"] * len(promises.ALL))),
        *(_kind(kind, checks) for kind in kinds.ALL),
        "",
        f"The tolerance for float32 is {_short(served_model.TOLERANCE)}, absolute and relative; "
        f"other types and strings must be equal. Requests have {ROWS} rows. Graphs that batch also "
        f"get requests of {promises.FEW_ROWS} rows, which the graphs pad. The batch sizes of the "
        f"compilation are {ROWS} rows, or {sizes} for graphs that batch. The topologies are "
        f"{_code(*DEFAULT_TOPOLOGIES)}.",
        "",
        *(f"- **{kind.name}**: {kind.what}." for kind in kinds.ALL),
        "",
        _row("model", f"architecture (trained for {TRAINING_STEPS} steps)"),
        _row("---", "---"),
        *(_row(model.name, model.what) for model in models.ALL),
        "",
    ]
    return "\n".join([*lines, ""])


def read_tables() -> str:
    """Return the tables in the document."""
    (section,) = _SECTION.findall(DOCUMENT.read_text())
    return str(section)


def write_tables(rendered: str) -> None:
    """Write the tables into the document."""
    DOCUMENT.write_text(_SECTION.sub(lambda _: rendered, DOCUMENT.read_text()))


def _kind(kind: kinds.Kind, checks: Mapping[Cell, str]) -> str:
    cells = []
    for promise in promises.ALL:
        broken = [name for name in kind.models if (kind.name, name, promise) not in checks]
        remarks: dict[str, list[str]] = {}
        for name in kind.models:
            remark = checks.get((kind.name, name, promise))
            if remark:
                remarks.setdefault(remark, []).append(name)
        notes = [f" ({remark}: {', '.join(names)})" for remark, names in remarks.items()]
        cells.append(f"no: {', '.join(broken)}" if broken else "✓" + "".join(notes))
    return _row(kind.name, ", ".join(kind.models), *cells)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _short(number: float) -> str:
    return np.format_float_scientific(number, trim="-", exp_digits=1)


def _code(*words: str) -> str:
    return ", ".join(f"`{word}`" for word in words)
