import sys
from pathlib import Path

import pytest

from tpuserve.errors import ExtraNotInstalled, InvalidInput
from tpuserve.files.plot_file import check_plot_path


@pytest.mark.parametrize("name", ["plot.txt", "plot", "nowhere/plot.png"])
def test_a_plot_path_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="plot"):
        check_plot_path(tmp_path / name)


def test_a_plot_without_matplotlib_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python refuses to import a module whose entry is None.
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ExtraNotInstalled, match=r"\.\[plot\]"):
        check_plot_path(tmp_path / "plot.png")
