"""The models that are to be served, at the start and after each reload."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from server.config.model_config import ModelConfig, ModelServerConfig
from server.models.file_system_source import Source
from server.models.manager import Manager
from server.servables.servable import VersionStatus
from tpuserve.errors import LabelNotAvailable, ModelsNotAvailable, TpuserveError, Unavailable

logger = logging.getLogger(__name__)


class Catalogue:
    """The configuration in force, and what puts one in force."""

    def __init__(
        self,
        manager: Manager,
        source: Source,
        *,
        allow_labels_for_unavailable: bool = False,
        on_config: Callable[[ModelServerConfig], None] = lambda config: None,
    ) -> None:
        """Takes the manager, and the source that tells it what is on disk.

        Args:
          allow_labels_for_unavailable: a new label may name a version that is not available.
          on_config: called with a configuration before it takes effect; may refuse it by an
            error, as the request log does.
        """
        self._manager = manager
        self._source = source
        self._allow_labels = allow_labels_for_unavailable
        self._on_config = on_config
        self._config = ModelServerConfig()
        self._one_at_a_time = threading.Lock()

    @property
    def config(self) -> ModelServerConfig:
        """The configuration in force."""
        return self._config

    def start(self, config: ModelServerConfig) -> None:
        """Puts the first configuration in force, and blocks until there is something to serve.

        A model that is alone must become available. Of several, those that cannot be found or
        loaded keep the others waiting only until their first failure; they are served once they
        are mended, and meanwhile their status says what is wrong.

        Raises:
          LabelNotAvailable: a label for a version, and those were not allowed.
          TpuserveError: the only model cannot be found.
          ModelsNotAvailable: none of the models has become available.
        """
        with self._one_at_a_time:
            try:
                self._apply(config)
            except LabelNotAvailable as error:
                raise LabelNotAvailable(
                    f"{error}. Nothing is at the start: give the flag "
                    f"--allow_version_labels_for_unavailable_models."
                ) from error
            names = config.names()
            self._manager.wait(lambda: self._is_worth_serving(names))
            failed = [name for name in names if not self._manager.is_available(name)]
            if failed and len(failed) == len(names):
                raise self._first_failure(failed)
            for name in failed:
                logger.error("%s", self._first_failure([name]))

    def reload(self, config: ModelServerConfig, *, wait: bool = True) -> None:
        """Puts another configuration in the place of the present one.

        Models that it leaves out are unloaded. Blocks until each of its models that was not
        served before, or not from there, has become available or has failed; what was served of
        it goes on being served until then. Labels are checked before anything is
        loaded, so one for a version that comes with the same reload is refused; a label that is
        there already never moves to a version that is not available. Source: section 3.2 of
        TensorFlow Serving's configuration guide, and its server_core.cc.

        Args:
          wait: False to return at once; what fails is then told by the status alone.

        Raises:
          LabelNotAvailable: a label that may not be given; nothing is loaded or unloaded then.
          ModelsNotAvailable: new models that have failed; the others are served.
        """
        with self._one_at_a_time:
            before = {each.name: each.base_path for each in self._config.models}
            new = sorted(
                each.name
                for each in config.models
                if before.get(each.name) != each.base_path or self._manager.reason(each.name)
            )
            self._apply(config)
        if not wait:
            return
        # Others may change the configuration meanwhile: a model may be tried for minutes.
        self._manager.wait(lambda: all(self._is_settled(each) for each in new))
        failed = [name for name in new if not self._manager.is_as_wanted(name)]
        if failed:
            raise self._failure(failed, "model")

    def _apply(self, config: ModelServerConfig) -> None:
        # Whatever refuses it comes first: the next reload then waits for what is new to it.
        for each in config.models:
            self._check_labels(each)
        self._on_config(config)
        before, self._config = self._config, config
        for name in set(before.names()) - set(config.names()):
            self._manager.label(name, {})
        for each in config.models:
            self._manager.label(each.name, each.labels)
        self._source.replace(config.models)

    def _check_labels(self, model: ModelConfig) -> None:
        present: Mapping[str, int] = self._manager.labels(model.name)
        for label, version in model.labels.items():
            if self._manager.is_available(model.name, version):
                continue
            is_new = present.get(label, version) == version
            if not (self._allow_labels and is_new):
                raise LabelNotAvailable(
                    f"Request to assign label to version {version} of model {model.name}, which "
                    f"is not currently available for inference"
                )

    def _is_settled(self, name: str) -> bool:
        return self._manager.is_settled(name)

    def _is_worth_serving(self, names: Sequence[str]) -> bool:
        if all(self._is_settled(name) for name in names):
            return True
        some = any(self._manager.is_available(name) for name in names)
        return some and all(self._is_settled(name) or self._has_failed(name) for name in names)

    def _has_failed(self, name: str) -> bool:
        return any(each.error is not None for each in self._known(name))

    def _known(self, name: str) -> list[VersionStatus]:
        try:
            return self._manager.status(name)
        except TpuserveError:
            return []

    def _first_failure(self, names: Sequence[str]) -> TpuserveError:
        """The error for models that are not available at the start."""
        reason = self._manager.reason(names[0])
        if len(names) == 1 and reason is not None and not self._has_failed(names[0]):
            # It is not there at all, and its own error says so in fewer words.
            return reason
        return self._failure(names, "servable")

    def _failure(self, names: Sequence[str], kind: str) -> ModelsNotAvailable:
        """The error for models that are not available, in TensorFlow Serving's words."""
        causes: list[tuple[str, TpuserveError]] = []
        for name in names:
            reason = self._manager.reason(name)
            if reason is not None:
                causes.append((f"name: {name}", reason))
            causes += [
                (f"name: {name} version: {each.version}", each.error)
                for each in self._known(name)
                if each.error is not None
            ]
        if not causes:
            # None has failed; each was given up, as its load waits for no one.
            gone = Unavailable("another configuration has come meanwhile. Ask for its status.")
            causes = [(f"name: {name}", gone) for name in names]
        shown = "".join(
            f"{{{{{what}}} due to error: {error.code.name}: {error}}}, " for what, error in causes
        )
        failure = ModelsNotAvailable(
            f"{len(names)} {kind}(s) did not become available: {{{shown}}}"
        )
        if len(causes) == 1:
            failure.__cause__ = causes[0][1]
        return failure
