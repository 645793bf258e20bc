"""Decides which installed packages get the names of TensorFlow 1 when they import TensorFlow."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.compat.source import tf1_detection
from trainer.compat.source.paths import OUR_PACKAGES

OPTION = "--as_tf1"

# Packages that never get the names of TensorFlow 1, because they are part of TensorFlow or
# tpuserve.
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
    """Decides which installed packages get the names of TensorFlow 1 when they import TensorFlow.

    A package gets these names if the user has requested it by the option --as_tf1, or if the source
    of the package's imported modules uses a name that only TensorFlow 1 has.

    Args:
      is_searched: whether to search the source of the other packages too. A package whose
        source uses a name that only TensorFlow 1 has then gets TensorFlow 1's names.
    """

    def __init__(self, named: Sequence[str] = (), *, is_searched: bool = True) -> None:
        self._named, self._is_searched = frozenset(named), is_searched
        self._included: set[str] = set()
        self._searched_files: dict[str, set[Path]] = {}

    def includes_module(self, module_globals: Mapping[str, Any] | None) -> bool:
        """Return whether the package of an importing module gets TensorFlow 1's names."""
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
        """Return a text that says why a package gets TensorFlow 1's names; None if it does not."""
        if package in self._named:
            return f"{OPTION} {package} is set"
        if not self._is_searched or not isinstance(file, str):
            return None
        seen = self._searched_files.setdefault(package, set())
        evidence = tf1_detection.find_package_evidence(package, Path(file), seen)
        if evidence is None:
            return None
        return f"{evidence}, which only TensorFlow 1 has (--no-tf1 turns that off)"
