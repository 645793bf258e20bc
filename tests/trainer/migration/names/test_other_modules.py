import importlib.metadata
import sys
from pathlib import Path

import pytest

from tests.trainer.migration import samples
from tests.trainer.migration.samples import findings_of, report_of
from trainer.migration import migration_report
from trainer.migration.names.classification import NameStatus


def test_a_module_that_is_not_installed_is_said_at_its_line(tmp_path: Path) -> None:
    (finding,) = findings_of(tmp_path, "import os, click\nimport nobody_has_this.inside").values()
    assert (finding.kind, finding.lines) == (NameStatus.MISSING, (2,))


def test_what_a_program_tries_to_import_is_not_missed(tmp_path: Path) -> None:
    source = """
        import tensorflow as tf
        try:
            import nobody_has_this
            from tensorflow.contrib import nobody_has_this_either
        except ImportError:
            import nor_this
    """
    assert set(findings_of(tmp_path, source)) == {"tensorflow"}


@pytest.mark.parametrize(
    "guard",
    [
        "try:\n    {}\nexcept (ValueError, ImportError):\n    gone = None",
        "try:\n    pass\nexcept builtins.ImportError:\n    pass\nelse:\n    {}",
        "with contextlib.suppress(ImportError):\n    {}",
        "with epy.lazy_imports():\n    {}",
        "if TYPE_CHECKING:\n    {}",
        "if typing.TYPE_CHECKING:\n    {}",
    ],
)
def test_a_module_is_not_missed_where_the_program_can_do_without(
    guard: str, tmp_path: Path
) -> None:
    assert report_of(tmp_path, guard.format("import nobody_has_this")).runs


@pytest.mark.parametrize(
    "guard",
    [
        "try:\n    {}\nexcept ImportError:\n    raise ValueError('Install it.')",
        "try:\n    {}\nexcept ImportError:\n    sys.exit('Install it.')",
        "try:\n    {}\nexcept KeyError:\n    pass",
        "with contextlib.suppress(KeyError):\n    {}",
        "with tf.device('cpu:0'):\n    {}",
        "if TYPE_CHECKING:\n    pass\nelse:\n    {}",
    ],
)
def test_a_module_is_missed_where_its_absence_ends_the_program(guard: str, tmp_path: Path) -> None:
    assert not report_of(tmp_path, guard.format("import nobody_has_this")).runs


def test_the_main_module_is_always_there(tmp_path: Path) -> None:
    assert report_of(tmp_path, "import __main__").runs


def test_a_module_above_the_script_comes_with_the_path_to_set(tmp_path: Path) -> None:
    samples.write_file(tmp_path, "models/__init__.py", "")
    script = samples.write_file(tmp_path, "models/mnist/main.py", "from models import common")
    (finding,) = migration_report.analyze_program(script).findings
    assert finding.kind is NameStatus.MISSING
    assert f"PYTHONPATH={tmp_path}" in finding.says


def test_modules_and_names_of_python_2_come_with_those_of_python_3(tmp_path: Path) -> None:
    findings = findings_of(tmp_path, "import cPickle\nfor each in xrange(3): unicode(each)")
    assert {finding.written: (finding.kind, finding.lines) for finding in findings.values()} == {
        "cPickle": (NameStatus.GONE, (1,)),
        "xrange": (NameStatus.GONE, (2,)),
        "unicode": (NameStatus.GONE, (2,)),
    }
    assert "range" in findings["xrange"].says


def test_a_name_of_python_2_that_the_program_defines_or_asks_for_is_its_own(tmp_path: Path) -> None:
    source = """
        import six
        from six.moves import xrange
        try:
            raw_input
        except NameError:
            pass
        text = unicode if six.PY2 else str
        def f(long): return long + sum(xrange(3))
    """
    assert findings_of(tmp_path, source) == {}


REMOVED = """
    import imp
    import inspect
    import numpy as np
    import collections
    import platform
    from fractions import gcd

    inspect.getargspec
    np.object
    np.bool
    np.product
    np.asscalar
    np.float32
    collections.Mapping
    platform.linux_distribution
"""


def test_names_that_python_and_numpy_have_removed_are_named(tmp_path: Path) -> None:
    findings = findings_of(tmp_path, REMOVED)
    supplied = {
        finding.written: finding.says
        for finding in findings.values()
        if finding.kind is NameStatus.SUPPLIED
    }
    assert supplied["np.object"] == "object"
    assert supplied["collections.Mapping"] == "collections.abc.Mapping"
    assert supplied["fractions.gcd"] == "math.gcd"
    gone = {
        finding.written: finding.says
        for finding in findings.values()
        if finding.kind is NameStatus.GONE
    }
    assert gone["np.asscalar"] == "Use a.item()."
    assert gone["platform.linux_distribution"] == "Use platform.freedesktop_os_release."
    assert "np.float32" not in findings
    # NumPy 2 removed the function.
    has_numpy_2 = int(importlib.metadata.version("numpy").partition(".")[0]) >= 2
    assert supplied.get("np.product") == ("numpy.prod" if has_numpy_2 else None)
    assert "inspect.getargspec" in supplied
    # Python 3.12 removed the module.
    assert ("imp" in gone) == (sys.version_info >= (3, 12))
