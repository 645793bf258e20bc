"""Holds the configuration of the served models, and replaces it when the server reloads it."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from server.config.model_config import ModelConfig, ModelServerConfig
from server.models.file_system_source import FileSystemSource
from server.models.manager import Manager
from server.servables.servable import VersionStatus
from tpuserve.errors import (
    LabelNotAvailable,
    ModelAlreadyLoaded,
    ModelNotFound,
    ModelsNotAvailable,
    TpuserveError,
    Unavailable,
    VersionNotFound,
)

# How many names of models a log line or a readiness check lists.
_LISTED_NAMES = 3
# The interval, in seconds, at which `ModelConfigManager.start` interrupts its wait for the models,
# so that Python can handle signals such as SIGTERM.
_SIGNAL_SECONDS = 0.5

logger = logging.getLogger(__name__)


class ModelConfigManager:
    """Holds the current model configuration and applies new configurations."""

    def __init__(
        self,
        manager: Manager,
        source: FileSystemSource,
        *,
        allow_labels_for_unavailable: bool = False,
        versions_required: bool = False,
        on_config: Callable[[ModelServerConfig], None] = lambda config: None,
    ) -> None:
        """Create a manager of an empty configuration.

        Args:
          manager: loads and unloads the versions.
          source: polls the base paths and tells the manager the aspired versions.
          allow_labels_for_unavailable: whether a new label may name a version that is not
            available.
          versions_required: whether a configuration with a model that has no version on disk is
            refused. A model's own `versions_required` takes precedence.
          on_config: called with each configuration before it takes effect; raises an error to
            refuse the configuration.
        """
        self._manager = manager
        self._source = source
        self._allow_labels = allow_labels_for_unavailable
        self._versions_required = versions_required
        self._on_config = on_config
        self._config = ModelServerConfig()
        # Model name → configuration, of the models that `unload_model` has removed.
        self._unloaded: dict[str, ModelConfig] = {}
        self._reload_lock = threading.Lock()

    @property
    def config(self) -> ModelServerConfig:
        """The current configuration."""
        return self._config

    def check(self, config: ModelServerConfig) -> None:
        """Check what `start` checks before it loads the first version.

        Raises:
          LabelNotAvailable: a model has a version label, which cannot name an available version
            before the first load, and allow_labels_for_unavailable is False.
          VersionNotFound: a model requires a version (`versions_required`) and has none on disk.
        """
        try:
            for model in config.models:
                self._check_labels(model)
        except LabelNotAvailable as error:
            raise LabelNotAvailable(
                f"{error}. No version is available at the start: set the flag "
                f"--allow_version_labels_for_unavailable_models."
            ) from error
        self._check_versions(config.models)

    def start(self, config: ModelServerConfig, *, is_polled: bool = True) -> None:
        """Apply the first configuration and block until the models can be served.

        The method waits until at least one model is available, and every other model is available,
        has failed, or has no version on disk. If no model has a version, the method waits for the
        first version, as TensorFlow Serving does. Failed models are served once their files are
        repaired; until then their status reports the error.

        Args:
          config: the configuration.
          is_polled: whether versions can appear later, because the source polls the base paths or
            another thread calls `reload`. If False, a server without versions is an error.

        Raises:
          LabelNotAvailable, VersionNotFound: see `check`.
          ModelsNotAvailable: no model is available, no load is in progress, and the method waits
            for no first version.
          TpuserveError: the only model has no version on disk, and is_polled is False.
        """
        with self._reload_lock:
            self.check(config)
            self._apply(config)
        self._source.wait_for_listings(config.names())
        missing = self._models_waited_for()
        if is_polled and missing:
            logger.info("waiting for a version of %s", _format_names(missing))
        # Wait again and again for a short time. A handler of a signal that the kernel has delivered
        # to another thread runs only between two waits.
        while not self._manager.wait(lambda: self._has_started(is_polled), _SIGNAL_SECONDS):
            pass
        names = self._config.names()
        failed = [name for name in names if not self._manager.is_available(name)]
        if failed and len(failed) == len(names):
            raise self._first_failure(failed)
        for name in failed:
            if self._has_failed(name):
                logger.error("%s", self._first_failure([name]))

    def startup_activity(self) -> str:
        """Return what `start` waits for, in one line, such as "loading resnet"."""
        names = self._config.names()
        missing = self._models_waited_for()
        loading = [name for name in names if not self._manager.is_converged(name)]
        activities = []
        if loading:
            activities.append(f"loading {_format_names(loading)}")
        if missing:
            reason = self._manager.unavailable_reason(missing[0])
            activities.append(f"waiting for a version of {_format_names(missing)}: {reason}")
        return "; ".join(activities) or "loading the models"

    def reload(self, config: ModelServerConfig, *, wait: bool = True) -> None:
        """Replace the configuration.

        Models that the new configuration leaves out are unloaded. The method blocks until each new
        model, and each model with a new base path, is available or has failed; old versions are
        served until then. Labels are checked before any load. A label for a version that the same
        reload adds is refused, and an existing label never moves to a version that is not
        available. Source: section 3.2 of TensorFlow Serving's configuration guide, and its
        server_core.cc.

        Args:
          config: the new configuration.
          wait: False to return at once; only the models' status then reports failures.

        Raises:
          LabelNotAvailable: a label is refused; no version is loaded or unloaded.
          VersionNotFound: a model requires a version (`versions_required`) and has none on disk.
          ModelsNotAvailable: new models have failed; the other models are served.
        """
        # The check may wait for remote storage: another reload must be able to start meanwhile.
        self._check_versions(config.models)
        with self._reload_lock:
            previous_paths = {model.name: model.base_path for model in self._config.models}
            new = sorted(
                model.name
                for model in config.models
                if previous_paths.get(model.name) != model.base_path
                or self._manager.unavailable_reason(model.name)
            )
            self._apply(config)
        if not wait:
            return
        # Wait without the lock: a load may be retried for minutes, and another reload must be able
        # to start meanwhile.
        self._source.wait_for_listings(new)
        self._manager.wait(lambda: all(map(self._is_settled, new)))
        failed = [name for name in new if not self._manager.matches_aspired(name)]
        if failed:
            raise self._failure(failed, "model")

    def load_model(self, name: str) -> None:
        """Load a model that was unloaded, or load a model of the configuration again if it failed.

        The method blocks until the model is available or has failed.

        Raises:
          ModelNotFound: neither the configuration nor the unloaded models have such a model.
          TpuserveError: see `reload`.
        """
        unloaded = self._unloaded.get(name)
        models = self._config.models
        if unloaded is not None and name not in self._config.names():
            models = (*models, unloaded)
        elif name not in self._config.names():
            raise self._unknown_model(name)
        self.reload(ModelServerConfig(models))
        self._unloaded.pop(name, None)

    def unload_model(self, name: str) -> None:
        """Unload all versions of a model, and block until no request uses them.

        The model's configuration is kept for `load_model`. A new configuration file or reload that
        has the model loads the model too.

        Raises:
          ModelNotFound: neither the configuration nor the unloaded models have such a model.
        """
        with self._reload_lock:
            removed = [model for model in self._config.models if model.name == name]
            if not removed:
                if name in self._unloaded:
                    return
                raise self._unknown_model(name)
            self._unloaded[name] = removed[0]
            others = tuple(model for model in self._config.models if model.name != name)
            self._apply(ModelServerConfig(others))
        self._manager.wait(lambda: self._manager.is_converged(name))

    def base_paths(self) -> dict[str, str]:
        """Return the name of each model of the configuration → its base path."""
        return {model.name: model.base_path for model in self._config.models}

    def add_model(self, name: str, base_path: str) -> None:
        """Add a model to the configuration, and block until it is available or has failed.

        A model that fails is removed again.

        Args:
          name: the name that clients use.
          base_path: an absolute path; the directory holds the versions, or is itself a SavedModel.

        Raises:
          ModelAlreadyLoaded: the configuration has a model of this name.
          InvalidConfig: the base path is invalid.
          VersionNotFound: the base path holds no version.
          ModelsNotAvailable: the model does not load.
        """
        with self._reload_lock:
            if name in self._config.names():
                raise ModelAlreadyLoaded(
                    f"a model is named {name!r} already. Unload it first, or choose another name."
                )
            model = ModelConfig(name, base_path, versions_required=True)
            config = ModelServerConfig((*self._config.models, model))
            self._check_versions([model])
            self._apply(config)
        self._source.wait_for_listings([name])
        self._manager.wait(lambda: self._manager.is_converged(name))
        if not self._manager.matches_aspired(name):
            error = self._failure([name], "model")
            self.remove_model(name)
            raise error

    def remove_model(self, name: str) -> None:
        """Remove a model from the configuration, and block until no request uses it.

        Raises:
          ModelNotFound: the configuration has no such model.
        """
        with self._reload_lock:
            if name not in self._config.names():
                raise self._unknown_model(name)
            others = tuple(model for model in self._config.models if model.name != name)
            self._apply(ModelServerConfig(others))
        self._manager.wait(lambda: self._manager.is_converged(name))

    def _unknown_model(self, name: str) -> ModelNotFound:
        known = _format_names([*self._config.names(), *self._unloaded]) or "none"
        return ModelNotFound(
            f"no model is named {name!r} in the configuration of this server, which has: {known}. "
            f"Add the model to the model config file."
        )

    def _apply(self, config: ModelServerConfig) -> None:
        # Check everything before the first change, so that a refused configuration changes nothing.
        for model in config.models:
            self._check_labels(model)
        self._on_config(config)
        previous, self._config = self._config, config
        for name in set(previous.names()) - set(config.names()):
            self._manager.set_version_labels(name, {})
        for model in config.models:
            self._manager.set_version_labels(model.name, model.labels)
        self._source.set_models(config.models)

    def _check_labels(self, model: ModelConfig) -> None:
        present: Mapping[str, int] = self._manager.version_labels(model.name)
        for label, version in model.labels.items():
            if self._manager.is_available(model.name, version):
                continue
            is_new = present.get(label, version) == version
            if not (self._allow_labels and is_new):
                raise LabelNotAvailable(
                    f"Request to assign label to version {version} of model {model.name}, which "
                    f"is not currently available for inference"
                )

    def _check_versions(self, models: Sequence[ModelConfig]) -> None:
        """Check that those models have a version that require one.

        Raises:
          VersionNotFound: a model has none.
        """
        required = [
            model
            for model in models
            if model.versions_required
            or (model.versions_required is None and self._versions_required)
        ]
        # List the base paths at the same time: each may be in storage that does not answer.
        with ThreadPoolExecutor(max(1, len(required))) as executor:
            for model, error in zip(
                required, executor.map(self._find_error, required), strict=True
            ):
                if error is not None:
                    source = "fail_if_no_model_versions_found of it"
                    if model.versions_required is None:
                        source = "--fail_if_no_model_versions_found"
                    raise VersionNotFound(
                        f"Unable to find a numerical version path for servable {model.name} at: "
                        f"{model.base_path} ({source} is set): {error}"
                    ) from error

    def _find_error(self, model: ModelConfig) -> TpuserveError | None:
        try:
            self._source.find_versions(model)
        except TpuserveError as error:
            return error
        return None

    def _has_started(self, is_polled: bool = True) -> bool:
        """Return whether `start` may return: models are available, or none will become so."""
        names = self._config.names()
        if any(self._manager.is_available(name) for name in names):
            return all(self._manager.is_converged(name) or self._has_failed(name) for name in names)
        is_waiting = is_polled and bool(self._models_waited_for())
        is_settled = self._manager.is_converged if is_polled else self._is_settled
        return not is_waiting and all(map(is_settled, names))

    def _is_settled(self, name: str) -> bool:
        """Return whether no load of a model is in progress, except for downloads that failed."""
        return self._manager.is_converged(name) or self._manager.has_failed_download(name)

    def _models_waited_for(self) -> list[str]:
        """Return the names of the configured models whose first version may still appear."""
        return [
            model.name
            for model in self._config.models
            if (model.is_local or model.is_remote) and self._manager.unavailable_reason(model.name)
        ]

    def _has_failed(self, name: str) -> bool:
        return any(status.error is not None for status in self._statuses(name))

    def _statuses(self, name: str) -> list[VersionStatus]:
        try:
            return self._manager.status(name)
        except TpuserveError:
            return []

    def _first_failure(self, names: Sequence[str]) -> TpuserveError:
        """Create the error for models that are not available at the start of the server."""
        reason = self._manager.unavailable_reason(names[0])
        if len(names) == 1 and reason is not None and not self._has_failed(names[0]):
            # No version was found on disk. Return the recorded error, which already says so.
            return reason
        return self._failure(names, "servable")

    def _failure(self, names: Sequence[str], kind: str) -> ModelsNotAvailable:
        """Create the error for models that are not available, in TensorFlow Serving's words.

        Args:
          names: the names of the models.
          kind: the word for a model in the text, "model" or "servable".
        """
        causes: list[tuple[str, TpuserveError]] = []
        for name in names:
            reason = self._manager.unavailable_reason(name)
            if reason is not None:
                causes.append((f"name: {name}", reason))
            causes += [
                (f"name: {name} version: {status.version}", status.error)
                for status in self._statuses(name)
                if status.error is not None
            ]
        if not causes:
            # No load has failed, so a later reload must have cancelled the loads.
            superseded = Unavailable(
                "another reload has replaced this configuration. Ask for the model's status."
            )
            causes = [(f"name: {name}", superseded) for name in names]
        return models_not_available(len(names), kind, causes)


def models_not_available(
    count: int, kind: str, causes: Sequence[tuple[str, TpuserveError]]
) -> ModelsNotAvailable:
    """Create the error for models that cannot be served, with TensorFlow Serving's text.

    Args:
      count: the number of the models.
      kind: the word for a model in the text, "model" or "servable".
      causes: pairs of a version, such as "name: resnet version: 1", and its error.

    Returns:
      The error. A single cause becomes its `__cause__`.
    """
    details = "".join(
        f"{{{{{subject}}} due to error: {error.code.name}: {error}}}, " for subject, error in causes
    )
    failure = ModelsNotAvailable(f"{count} {kind}(s) did not become available: {{{details}}}")
    if len(causes) == 1:
        failure.__cause__ = causes[0][1]
    return failure


def _format_names(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_LISTED_NAMES])
    others = len(names) - _LISTED_NAMES
    return f"{listed} and {others} more" if others > 0 else listed
