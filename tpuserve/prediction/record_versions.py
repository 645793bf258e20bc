"""Runs each request of an input file in the version of the model that the request names."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from tpuserve.errors import Code, CodedError, VersionNotFound
from tpuserve.prediction.batch import InputBatch
from tpuserve.prediction.example_predictor import Predictor
from tpuserve.runtime.loaded_model import Array, LoadedModel
from tpuserve.saved_model.signature import Signature

logger = logging.getLogger(__name__)


class RecordVersions:
    """The versions of a model, each of which is loaded when the first request names it.

    Args:
      directory: the directory of the version that requests without a version run in, named by its
        number. The other versions stand beside it.
      model: the loaded model of that version.
      load: loads the version in a directory.
      batch_size: the size of a full batch, as `Predictor` takes it.
    """

    def __init__(
        self,
        directory: Path,
        model: LoadedModel,
        load: Callable[[Path], LoadedModel],
        batch_size: int,
    ) -> None:
        self._base_path = directory.parent
        self._load = load
        self._batch_size = batch_size
        self._default = Predictor(model, batch_size)
        self._models = {int(directory.name): model}
        self._loaded: list[LoadedModel] = []
        self._predictors = {version: self._default for version in self._models}

    def signatures(self, version: int) -> Mapping[str, Signature]:
        """Return the signatures of a version, which is loaded first if it is not.

        Raises:
          VersionNotFound: the base path has no such version.
          CodedError: a signature of the version writes, so that its requests have an order.
        """
        if version not in self._models:
            directory = self._base_path / str(version)
            if not directory.is_dir():
                raise VersionNotFound(
                    f"a record names version {version}, and {directory} does not exist. Add the "
                    f"version, or leave out --record-versions."
                )
            logger.warning("%s: loading it, because a record names its version", directory)
            model = self._load(directory)
            self._loaded.append(model)
            for name, signature in model.signatures.items():
                if signature.write:
                    raise CodedError(
                        f"{directory}: signature {name} {signature.write}. Predict the records of "
                        f"this version by themselves, without --record-versions.",
                        Code.FAILED_PRECONDITION,
                    )
            self._models[version] = model
            self._predictors[version] = Predictor(model, self._batch_size)
        return self._models[version].signatures

    def run(self, batch: InputBatch) -> dict[str, Array]:
        """Return the outputs of a batch, as `Predictor.run` does, from the version of the batch."""
        predictor = self._default if batch.version is None else self._predictors[batch.version]
        return predictor.run(batch)

    def close(self) -> None:
        """Close the models that `signatures` has loaded."""
        for model in self._loaded:
            model.close()
