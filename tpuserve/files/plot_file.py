"""Checks the paths of plot files, and writes the figures of matplotlib to them."""

from pathlib import Path
from typing import TYPE_CHECKING

from tpuserve.errors import ExtraNotInstalled, InvalidInput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMATS = (".pdf", ".png", ".svg")


def check_plot_path(path: Path) -> None:
    """Check that a plot can be written to a path, before a long computation of its data.

    Raises:
      InvalidInput: The suffix is not a supported format, or the directory does not exist.
    """
    if path.suffix.lower() not in _FORMATS:
        raise InvalidInput(
            f"{path} has no supported suffix. Give a file that ends with one of "
            f"{', '.join(_FORMATS)}."
        )
    if not path.parent.is_dir():
        raise InvalidInput(f"no directory {path.parent} for {path.name}. Create it first.")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ExtraNotInstalled(
            'a plot needs matplotlib, which is not installed. Install it: pip install ".[plot]"'
        ) from error


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure to a file; the file has a temporary name until it is complete."""
    temporary = path.with_name(f".{path.stem}.unfinished{path.suffix}")
    figure.savefig(temporary, dpi=120)
    temporary.replace(path)
