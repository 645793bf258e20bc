"""What is on disk, looked at again and again, and told to the manager."""

import logging
import threading
from collections.abc import Callable

from server.config.model_config import ModelConfig
from server.models.manager import Manager
from server.models.repository import Repository
from tpuserve.errors import TpuserveError, VersionNotFound

logger = logging.getLogger(__name__)


class Source:
    """The base paths of some models; each look aspires what it finds.

    A model that cannot be found keeps no other from being found, and keeps the versions that it
    has; one whose versions are all gone is unloaded.
    """

    def __init__(self, manager: Manager) -> None:
        """Takes the manager to tell."""
        self._manager = manager
        self._models: tuple[ModelConfig, ...] = ()
        self._told: dict[str, str] = {}
        self._one_at_a_time = threading.RLock()

    def replace(self, models: tuple[ModelConfig, ...]) -> None:
        """Serves just these models from now on, after a first look at each; loads only begin."""
        with self._one_at_a_time:
            gone = {each.name for each in self._models} - {each.name for each in models}
            self._models = models
            for name in sorted(gone):
                self._told.pop(name, None)
                self._manager.begin(name, {})
            for each in models:
                # Whoever asks for these models is told what is wrong with them, and says so.
                self._look_at(each, lambda name, text: None)

    def look(self) -> None:
        """Reads every base path once."""
        with self._one_at_a_time:
            for each in self._models:
                self._look_at(each, self._say)

    def _look_at(self, model: ModelConfig, say: Callable[[str, str], None]) -> None:
        try:
            versions = Repository(model.path, model.policy).aspired()
        except VersionNotFound as error:
            self._manager.begin(model.name, {})
            self._manager.explain(model.name, error)
            say(model.name, f"No versions of servable {model.name}: {error}")
        except TpuserveError as error:
            self._manager.explain(model.name, error)
            say(
                model.name,
                f"Could not find base path {model.base_path} for servable {model.name} with "
                f"error {error}",
            )
        else:
            self._told.pop(model.name, None)
            self._manager.begin(model.name, versions)

    def _say(self, name: str, text: str) -> None:
        # Once, and not at every look.
        if self._told.get(name) != text:
            self._told[name] = text
            logger.warning("%s", text)


class Poller:
    """Calls something again and again in a thread of its own, whatever that raises."""

    def __init__(self, name: str, action: Callable[[], None], interval_seconds: float) -> None:
        """Takes what to do, and how long to wait after each time; 0 or less for never."""
        self._name = name
        self._action = action
        self._interval_seconds = interval_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins; the first time comes after one interval."""
        if self._interval_seconds > 0:
            self._thread.start()

    def stop(self) -> None:
        """No further time begins; one under way is left to end by itself."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            try:
                self._action()
            except Exception:
                # The next time may be better, and who polls must not end because of one.
                logger.exception("%s: failed, and will try again", self._name)
