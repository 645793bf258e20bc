"""Without an extra, its module is an error of one line that says what to install."""

import sys

import pytest

from tpuserve.errors import ExtraNotInstalled


@pytest.mark.parametrize(("name", "package"), [("beam", "apache_beam"), ("ray", "ray")])
def test_a_missing_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"tpuserve.{name}", raising=False)
    with pytest.raises(ExtraNotInstalled, match=rf'pip install "\.\[{name}\]"'):
        __import__(f"tpuserve.{name}")
