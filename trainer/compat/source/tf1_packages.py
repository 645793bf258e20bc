"""Decides which installed packages get the names of TensorFlow 1."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.compat.source import tf1_detection
from trainer.compat.source.paths import OUR_PACKAGES

OPTION = "--as_tf1"

# Packages that are part of TensorFlow or of tpuserve, and never need the names of TensorFlow 1.
EXCLUDED_PACKAGES = frozenset(
    (
        "keras",
        "tensorboard",
        "tensorflow",
        "tensorflow_estimator",
        "tensorflow_serving",
        "tf_keras",
        *OUR_PACKAGES,
    )
)


class Tf1Packages:
    """The installed packages that get the names of TensorFlow 1 when they import TensorFlow.

    A package gets them if the user has named it, or if the part of it that the program imports uses
    a name that only TensorFlow 1 has. A line on standard error names each such package.
    """

    def __init__(self, named: Sequence[str] = (), *, is_searched: bool = True) -> None:
        """Store the settings.

        Args:
          named: the packages that the user has named.
          is_searched: whether to search the other packages for names of TensorFlow 1, and to give
            these names to the packages that use any.
        """
        self._named, self._is_searched = frozenset(named), is_searched
        self._included: set[str] = set()
        self._searched_files: dict[str, set[Path]] = {}

    def includes_module(self, module_globals: Mapping[str, Any] | None) -> bool:
        """Return whether the package of a module that imports TensorFlow gets TensorFlow 1's names.

        Args:
          module_globals: the global variables of the module; None if the module is unknown.
        """
        if module_globals is None:
            return False
        package = str(module_globals.get("__name__", "")).partition(".")[0]
        if package in self._included:
            return True
        if package in EXCLUDED_PACKAGES or not package:
            return False
        reason = self._find_reason(package, module_globals.get("__file__"))
        if reason is None:
            return False
        self._included.add(package)
        print(
            f"tpuserve: the package {package} gets TensorFlow 1's names: {reason}",
            file=sys.stderr,
            flush=True,
        )
        return True

    def _find_reason(self, package: str, file: Any) -> str | None:
        """Return why a package gets TensorFlow 1's names; None if it does not get them."""
        if package in self._named:
            return f"{OPTION} {package} is set"
        if not self._is_searched or not isinstance(file, str):
            return None
        seen = self._searched_files.setdefault(package, set())
        evidence = tf1_detection.find_package_evidence(package, Path(file), seen)
        if evidence is None:
            return None
        return f"{evidence}, which only TensorFlow 1 has (--no-tf1 turns that off)"
