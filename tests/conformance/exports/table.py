"""The table in docs/conformance.md, rendered from what was found."""

import re
from collections.abc import Set
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tests.conformance.exports import asking, kinds, models, promises
from tests.conformance.exports.model import ROWS, TRAINING_STEPS
from tpuserve.compilation.chips import DEFAULT_TOPOLOGIES

DOCUMENT = Path(__file__).parents[3] / "docs/conformance.md"
_SECTION = re.compile(r"(?<=<!-- found by a test run -->\n).*?(?=<!-- end -->)", re.DOTALL)

# Kind, model, promise.
Cell: TypeAlias = tuple[str, str, str]

ALL = frozenset(
    (kind.name, model, promise)
    for kind in kinds.ALL
    for model in kind.models
    for promise in promises.ALL
)


def render(kept: Set[Cell]) -> str:
    """The tables, given which promises were found to be kept."""
    sizes = " and ".join(map(str, kinds.ALLOWED_BATCH_SIZES))
    lines = [
        "",
        _row("kind of export", "models", *promises.ALL),
        _row("---", "---", *([":-:"] * len(promises.ALL))),
        *(_kind(kind, kept) for kind in kinds.ALL),
        "",
        f"Compared within {_short(asking.TOLERANCE)}, absolute and relative, in float32; "
        f"other types and strings are equal. Asked with {ROWS} rows; where the graph batches, "
        f"also with {promises.FEW_ROWS}, which it pads. Compiled at {ROWS} rows, where the graph "
        f"batches at {sizes}, for {_code(*DEFAULT_TOPOLOGIES)}.",
        "",
        *(f"- **{kind.name}**: {kind.what}." for kind in kinds.ALL),
        "",
        _row("model", f"what it is, after {TRAINING_STEPS} steps of training"),
        _row("---", "---"),
        *(_row(model.name, model.what) for model in models.ALL),
        "",
    ]
    return "\n".join([*lines, ""])


def committed() -> str:
    """The tables as they stand in the document."""
    (found,) = _SECTION.findall(DOCUMENT.read_text())
    return str(found)


def write(rendered: str) -> None:
    """Puts the tables into the document."""
    DOCUMENT.write_text(_SECTION.sub(lambda _: rendered, DOCUMENT.read_text()))


def _kind(kind: kinds.Kind, kept: Set[Cell]) -> str:
    cells = []
    for promise in promises.ALL:
        broken = [name for name in kind.models if (kind.name, name, promise) not in kept]
        cells.append(f"no: {', '.join(broken)}" if broken else "✓")
    return _row(kind.name, ", ".join(kind.models), *cells)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _short(number: float) -> str:
    return np.format_float_scientific(number, trim="-", exp_digits=1)


def _code(*words: str) -> str:
    return ", ".join(f"`{each}`" for each in words)
