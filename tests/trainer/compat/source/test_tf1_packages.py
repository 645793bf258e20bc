from pathlib import Path

import pytest

from trainer.compat.source.tf1_packages import Tf1Packages

OLD = "import tensorflow as tf\nfiles = tf.gfile.Glob('*')\n"
NEW = "import tensorflow as tf\nfiles = tf.io.gfile.glob('*')\n"
BOTH = """
import tensorflow as tf
try:
    files = tf.gfile.Glob("*")
except AttributeError:
    files = tf.io.gfile.glob("*")
if hasattr(tf, "placeholder"):
    x = tf.placeholder(tf.float32)
try:
    from tensorflow.contrib import slim
except ImportError:
    slim = None
"""


def write_package(directory: Path, **modules: str) -> Path:
    package = directory / "site-packages" / "library"
    package.mkdir(parents=True)
    for name, source in {"__init__": "", **modules}.items():
        (package / f"{name}.py").write_text(source)
    return package


def includes(package: Path, module: str, packages: Tf1Packages) -> bool:
    return packages.includes_module(
        {"__name__": f"library.{module}", "__file__": str(package / f"{module}.py")}
    )


def test_a_package_that_uses_names_of_tensorflow_1_gets_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, packages = write_package(tmp_path, one=OLD, two=NEW), Tf1Packages()
    assert includes(package, "one", packages)
    assert includes(package, "two", packages)
    # The line is printed only once.
    assert capsys.readouterr().err == (
        "tpuserve: the package library gets TensorFlow 1's names: library/one.py:2 names "
        "tf.gfile.Glob, which only TensorFlow 1 has (--no-tf1 turns that off)\n"
    )


def test_what_a_module_imports_from_its_package_counts(tmp_path: Path) -> None:
    package = write_package(tmp_path, one="import tensorflow\nfrom library import two\n", two=OLD)
    assert includes(package, "one", Tf1Packages())


@pytest.mark.parametrize("source", [NEW, BOTH])
def test_a_package_that_runs_with_tensorflow_2_keeps_it(tmp_path: Path, source: str) -> None:
    package = write_package(tmp_path, one=source, unused=OLD)
    assert not includes(package, "one", Tf1Packages())


def test_the_user_decides_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = write_package(tmp_path, one=OLD, two=NEW)
    assert not includes(package, "one", Tf1Packages(is_searched=False))
    assert includes(package, "two", Tf1Packages(["library"], is_searched=False))
    assert "--as_tf1 library is set" in capsys.readouterr().err


def test_tensorflow_itself_is_no_old_package(tmp_path: Path) -> None:
    module = {
        "__name__": "tensorflow.python.x",
        "__file__": str(write_package(tmp_path, one=OLD) / "one"),
    }
    assert not Tf1Packages().includes_module(module)
