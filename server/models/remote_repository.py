"""Finds the versions of a model in remote storage, such as gs://bucket/models/half."""

from collections.abc import Collection
from pathlib import Path

from server.config.model_config import ModelConfig
from server.models.repository import (
    SAVED_MODEL_FILES,
    Repository,
    number_of_only_version,
    select_versions,
    version_number,
)
from server.storage.listing import RemoteDirectory
from server.storage.remote_models import RemoteModels
from tpuserve.errors import VersionNotFound

_LISTED_NAMES = 5


class RemoteRepository:
    """The versions of one model in remote storage.

    Each call of a method lists the storage again.

    Args:
      models: lists the storage, and knows the local directory to which a version is downloaded.
    """

    def __init__(self, model: ModelConfig, models: RemoteModels) -> None:
        self._model = model
        self._models = models

    def aspired_versions(self) -> dict[int, Path]:
        """Return version → local directory, for the versions that the model's policy selects.

        The directory is in the cache of downloaded versions. It does not exist before the version
        is downloaded.
        """
        base_path = self._model.base_path
        remote = RemoteDirectory(base_path)
        directories, files = remote.list_names()
        numbers = {name: version_number(name) for name in directories}
        names = {number: name for name, number in numbers.items() if number is not None}
        if not names and set(files) & set(SAVED_MODEL_FILES):
            names = {number_of_only_version(base_path.rstrip("/").rpartition("/")[2]): ""}
        if not names:
            entries = ", ".join([*directories, *files][:_LISTED_NAMES]) or "no entries"
            error = VersionNotFound(
                f"no version directory in {base_path}. Upload the model to a directory named a "
                f"number, as {base_path.rstrip('/')}/1."
            )
            error.add_note(f"The base path has {entries}.")
            raise error
        selected = select_versions(names, self._model.policy, base_path)
        return self._models.find_directories(remote, selected)


def create_repository(
    model: ModelConfig, models: RemoteModels | None, aspired: Collection[Path] = ()
) -> Repository | RemoteRepository:
    """Return a RemoteRepository for a model with a remote base path, else a Repository.

    Args:
      models: lists remote base paths; None to refuse them.

    Raises:
      BasePathNotFound: the base path is a URI whose scheme the server does not support, or is
        remote while `models` is None.
    """
    if model.is_remote and models is not None:
        return RemoteRepository(model, models)
    return Repository(model.path, model.policy, aspired)
