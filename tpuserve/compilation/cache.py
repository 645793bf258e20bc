"""Results of earlier compilations, by content."""

import contextlib
import dataclasses
import hashlib
import json
import os
import uuid
from pathlib import Path

from tpuserve.compilation.stats import CompileResult, CompileStats

ENVIRONMENT_NAME = "TPUSERVE_CACHE_DIR"


class CompileCache:
    """A directory of results, one file each. Two processes may use it at once."""

    def __init__(self, directory: Path | None) -> None:
        """Looks at nothing yet; None keeps nothing."""
        self._directory = directory

    @staticmethod
    def of_user() -> "CompileCache":
        """The one that all of a user's runs share."""
        import platformdirs

        named = os.environ.get(ENVIRONMENT_NAME)
        base = Path(named) if named else Path(platformdirs.user_cache_dir("tpuserve"))
        return CompileCache(base / "compile")

    def find(self, *content: str) -> CompileResult | None:
        """What was stored for some content; None if nothing was."""
        path = self._path(content)
        if path is None:
            return None
        try:
            found = json.loads(path.read_text())
            figures = found["figures"]
            return CompileResult(
                None if figures is None else CompileStats(**figures), found["error"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            # Not there, cut short, or of another version: compiled again, it is replaced.
            return None

    def store(self, outcome: CompileResult, *content: str) -> None:
        """Keeps what came of compiling some content; does without where nothing can be written."""
        path = self._path(content)
        if path is None:
            return
        beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(dataclasses.asdict(outcome)))
            beside.replace(path)

    def _path(self, content: tuple[str, ...]) -> Path | None:
        if self._directory is None:
            return None
        digest = hashlib.sha256("\n".join(content).encode()).hexdigest()
        return self._directory / digest[:2] / f"{digest}.json"
