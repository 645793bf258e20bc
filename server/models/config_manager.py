"""Holds the configuration of the served models, and applies new configurations."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from server.config.model_config import ModelConfig, ModelServerConfig, SpecificPolicy
from server.models.file_system_source import FileSystemSource
from server.models.manager import Manager
from server.models.missing_model import explain_missing_model
from server.servables.servable import VersionStatus
from tpuserve.errors import (
    BasePathNotFound,
    Code,
    CodedError,
    LabelNotAvailable,
    ModelNotFound,
    ModelsNotAvailable,
    ReloadSuperseded,
    TpuserveError,
    VersionNotFound,
)

# The largest number of model names in a log line or in the response to a readiness check.
_LISTED_NAMES = 3
# When the server starts, it waits for the models. It interrupts this wait at this interval, in
# seconds, so that Python can handle signals such as SIGTERM.
_SIGNAL_SECONDS = 0.5

# The errors of a base path without versions. Other errors, such as those of a network, can pass.
_MISSING = (BasePathNotFound, VersionNotFound)

logger = logging.getLogger(__name__)


class ModelConfigManager:
    """Holds the current model configuration, and loads and unloads models when it changes.

    Args:
      base_paths_required: whether `start` fails if no model has a version, and it would wait only
        for local base paths.
      each_path_required: whether `start` fails if any model has no version, also in remote storage.
      on_config: called with each configuration before it takes effect; raises an error to
        refuse the configuration.
    """

    def __init__(
        self,
        manager: Manager,
        source: FileSystemSource,
        *,
        allow_labels_for_unavailable: bool = False,
        versions_required: bool = False,
        base_paths_required: bool = False,
        each_path_required: bool = False,
        on_config: Callable[[ModelServerConfig], None] = lambda config: None,
    ) -> None:
        self._manager = manager
        self._source = source
        self._allow_labels = allow_labels_for_unavailable
        self._versions_required = versions_required
        self._base_paths_required = base_paths_required
        self._each_path_required = each_path_required
        self._on_config = on_config
        self._config = ModelServerConfig()
        # Model name → configuration, of the models that were unloaded on request. They can be
        # loaded again.
        self._unloaded: dict[str, ModelConfig] = {}
        self._reload_lock = threading.Lock()

    @property
    def config(self) -> ModelServerConfig:
        """The current configuration."""
        return self._config

    def check(self, config: ModelServerConfig) -> None:
        """Check the first configuration, as `start` does before it loads a version.

        Raises:
          VersionNotFound: the base path of a model has no version or cannot be read, and
            `versions_required` applies.
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
        if self._base_paths_required:
            self._check_base_paths(config.models)

    def start(self, config: ModelServerConfig, *, is_polled: bool = True) -> None:
        """Apply the first configuration, and wait until the models can be served.

        The method waits until at least one model is available and no model is loading.

        Args:
          is_polled: whether versions can appear later, because the base paths are polled or another
            thread calls `reload`. If False, the method does not wait for the first version.
        """
        with self._reload_lock:
            self.check(config)
            self._apply(config)
        self._source.wait_for_listings(config.names())
        missing = self._models_waited_for()
        if is_polled and missing:
            logger.info("waiting for a version of %s", _format_names(missing))
        # Repeat short waits instead of one long wait: if the kernel delivers a signal to another
        # thread, Python runs the handler in this thread only between two waits.
        while not self._manager.wait(lambda: self._has_started(is_polled), _SIGNAL_SECONDS):
            pass
        names = self._config.names()
        failed = [name for name in names if not self._manager.is_available(name)]
        if failed and len(failed) == len(names):
            raise self._first_failure(failed)
        for name in failed if self._each_path_required else ():
            reason = self._manager.unavailable_reason(name)
            if reason is not None:
                raise reason
        for name in failed:
            if self._has_failed(name):
                logger.error("%s", self._first_failure([name]))

    def startup_activity(self) -> str:
        """Return what `start` is waiting for, as one line of text, such as "loading resnet"."""
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

    def reload(
        self, config: ModelServerConfig, *, wait: bool = True, keep_logging: bool = False
    ) -> None:
        """Replace the configuration, and load and unload models accordingly.

        Models that the new configuration does not have are unloaded, and `load_model` cannot load
        them again.

        Args:
          keep_logging: whether the request log of each known model stays as it is configured. A
            client's configuration cannot have request logs, and must not end them.

        Raises:
          VersionNotFound: the base path of a model has no version or cannot be read, and
            `versions_required` applies.
          ReloadSuperseded: another reload has left new models out before they were available.
          ModelsNotAvailable: new models have failed to load; all other models are served.
        """
        # Check the versions without holding the lock: the check can wait for remote storage, and
        # another reload must be able to start in the meantime.
        self._check_versions(config.models)
        with self._reload_lock:
            if keep_logging:
                config = self._with_known_logging(config)
            previous_paths = {model.name: model.base_path for model in self._config.models}
            new = sorted(
                model.name
                for model in config.models
                if previous_paths.get(model.name) != model.base_path
                or self._manager.unavailable_reason(model.name)
            )
            self._apply(config)
            # Forget the unloaded models. Otherwise `load_model` would add a model that the new
            # configuration has left out.
            self._unloaded.clear()
        if not wait:
            return
        # Wait for the models without holding the lock: a load can be retried for minutes, and
        # another reload must be able to start in the meantime.
        self._wait_for_loads(new)

    def load_model(self, name: str) -> None:
        """Load a model that was unloaded, or a model of the configuration that has failed to load.

        The method waits until the model is available or has failed.
        """
        with self._reload_lock:
            model = self._known_model(name)
        # Check the version and wait for the load without holding the lock, as `reload` does.
        self._check_versions([model])
        with self._reload_lock:
            model = self._known_model(name)
            models = self._config.models
            config = ModelServerConfig(models if model in models else (*models, model))
            self._apply(config, retried=name, polled=[name])
            self._unloaded.pop(name, None)
        self._wait_for_loads([name])

    def unload_model(self, name: str) -> None:
        """Begin to unload all versions of a model, and wait until no load of it is in progress.

        Requests in flight are still answered; the method does not wait for them.
        """
        with self._reload_lock:
            removed = [model for model in self._config.models if model.name == name]
            if not removed:
                if name in self._unloaded:
                    return
                raise self._unknown_model(name)
            self._unloaded[name] = removed[0]
            others = tuple(model for model in self._config.models if model.name != name)
            self._apply(ModelServerConfig(others), polled=())
        self._manager.wait(lambda: self._manager.is_converged(name))

    def base_paths(self) -> dict[str, str]:
        """Return model name → base path, for all models of the configuration."""
        return {model.name: model.base_path for model in self._config.models}

    def add_model(self, name: str, base_path: str) -> None:
        """Add a model to the configuration, and wait until it is available or has failed.

        If the model fails to load, it is removed from the configuration again.
        """
        with self._reload_lock:
            if name in self._config.names():
                raise CodedError(
                    f"a model is named {name!r} already. Unload it first, or choose another name.",
                    Code.ALREADY_EXISTS,
                )
            model = ModelConfig(name, base_path, versions_required=True)
            config = ModelServerConfig((*self._config.models, model))
            self._check_versions([model])
            self._apply(config, polled=[name])
        self._source.wait_for_listings([name])
        self._manager.wait(lambda: self._manager.is_converged(name))
        if not self._manager.matches_aspired(name):
            error = self._failure([name], "model")
            self.remove_model(name)
            raise error

    def remove_model(self, name: str) -> None:
        """Remove a model from the configuration, and begin to unload its versions.

        The method waits until no load of the model is in progress.
        """
        with self._reload_lock:
            if name not in self._config.names():
                raise self._unknown_model(name)
            others = tuple(model for model in self._config.models if model.name != name)
            self._apply(ModelServerConfig(others), polled=())
        self._manager.wait(lambda: self._manager.is_converged(name))

    def _wait_for_loads(self, names: Sequence[str]) -> None:
        self._source.wait_for_listings(names)
        self._manager.wait(lambda: all(map(self._is_done_loading, names)))
        failed = [name for name in names if not self._manager.matches_aspired(name)]
        if failed:
            raise self._failure(failed, "model")

    def _known_model(self, name: str) -> ModelConfig:
        known = self._known_models()
        if name not in known:
            raise self._unknown_model(name)
        return known[name]

    def _known_models(self) -> dict[str, ModelConfig]:
        return self._unloaded | {model.name: model for model in self._config.models}

    def _with_known_logging(self, config: ModelServerConfig) -> ModelServerConfig:
        known = self._known_models()
        return ModelServerConfig(
            tuple(
                replace(model, logging=known[model.name].logging) if model.name in known else model
                for model in config.models
            )
        )

    def _unknown_model(self, name: str) -> ModelNotFound:
        known = _format_names([*self._config.names(), *self._unloaded]) or "none"
        return ModelNotFound(
            f"no model is named {name!r} in the configuration of this server, which has: {known}. "
            f"Add the model to the model config file."
        )

    def _apply(
        self,
        config: ModelServerConfig,
        *,
        retried: str | None = None,
        polled: Collection[str] | None = None,
    ) -> None:
        """Check a configuration, let it take effect, and poll base paths, as `set_models` does."""
        # Check the whole configuration before the first change, so that a refused configuration has
        # no effect.
        for model in config.models:
            self._check_labels(model)
        self._on_config(config)
        previous, self._config = self._config, config
        for name in set(previous.names()) - set(config.names()):
            self._manager.set_version_labels(name, {})
        for model in config.models:
            self._manager.set_version_labels(model.name, model.labels)
        if retried is not None:
            # Retry before the base paths are polled, and not afterwards. Otherwise a load that the
            # poll starts, and that fails at once, would be repeated.
            self._manager.retry_failed_loads(retried)
        self._source.set_models(config.models, polled)

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
        """Check that each model that requires a version has one in its base path."""
        required = [
            model
            for model in models
            if model.versions_required
            or (model.versions_required is None and self._versions_required)
        ]
        # List all base paths in parallel, because each can be in storage that does not answer.
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

    def _check_base_paths(self, models: Sequence[ModelConfig]) -> None:
        """Raise an error, with a command that would do, if local models have no versions."""
        missing = [
            (model, error)
            for model in models
            if model.is_local and isinstance(error := self._find_error(model), _MISSING)
        ]
        if missing and (self._each_path_required or len(missing) == len(models)):
            model, error = missing[0]
            if isinstance(model.policy, SpecificPolicy) and isinstance(error, VersionNotFound):
                raise error
            raise type(error)(explain_missing_model(model.path)) from error

    def _find_error(self, model: ModelConfig) -> TpuserveError | None:
        try:
            self._source.find_versions(model)
        except TpuserveError as error:
            return error
        return None

    def _has_started(self, is_polled: bool = True) -> bool:
        names = self._config.names()
        if any(self._manager.is_available(name) for name in names):
            return all(self._manager.is_converged(name) or self._has_failed(name) for name in names)
        is_waiting = is_polled and bool(self._models_waited_for())
        is_done = self._manager.is_converged if is_polled else self._is_done_loading
        return not is_waiting and all(map(is_done, names))

    def _is_done_loading(self, name: str) -> bool:
        return self._manager.is_converged(name) or self._manager.has_failed_download(name)

    def _models_waited_for(self) -> list[str]:
        """Return the names of the models that have no version now but can get one later."""
        waiting = [
            (model, reason)
            for model in self._config.models
            if (model.is_local or model.is_remote)
            and (reason := self._manager.unavailable_reason(model.name))
        ]
        # A base path in an object store exists only once it has a version.
        if self._base_paths_required and all(
            (model.is_local or self._each_path_required) and isinstance(reason, _MISSING)
            for model, reason in waiting
        ):
            return []
        return [model.name for model, _ in waiting]

    def _has_failed(self, name: str) -> bool:
        return any(status.error is not None for status in self._statuses(name))

    def _statuses(self, name: str) -> list[VersionStatus]:
        try:
            return self._manager.status(name)
        except TpuserveError:
            return []

    def _first_failure(self, names: Sequence[str]) -> TpuserveError:
        reason = self._manager.unavailable_reason(names[0])
        if len(names) == 1 and reason is not None and not self._has_failed(names[0]):
            # The base path has no version, or cannot be read: return the recorded error, which says
            # why.
            return reason
        return self._failure(names, "servable")

    def _failure(self, names: Sequence[str], kind: str) -> ModelsNotAvailable:
        """Create the error for models that are not available, with TensorFlow Serving's text."""
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
            # No load has failed, and yet the models are not available: a later reload must have
            # cancelled the loads.
            return ReloadSuperseded(
                f"another reload has replaced this configuration before {_format_names(names)} "
                f"became available. Send it again if it must stay, with all models that must stay."
            )
        return models_not_available(len(names), kind, causes)


def models_not_available(
    count: int, kind: str, causes: Sequence[tuple[str, TpuserveError]]
) -> ModelsNotAvailable:
    """Create the error for models that are not available, with TensorFlow Serving's text.

    Args:
      causes: pairs of a text that names a version, such as "name: resnet version: 1", and the error
        of this version.
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
