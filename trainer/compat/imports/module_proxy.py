"""What a TensorFlow 1 program gets for `import tensorflow as tf`."""

import difflib
from types import ModuleType
from typing import Any


class TensorFlow1Proxy(ModuleType):
    """The module tensorflow with the names of version 1, and those of version 2 beside them.

    Only modules of the program see it; libraries go on with TensorFlow itself.
    """

    def __init__(self, real: ModuleType, contrib: ModuleType) -> None:
        """Takes TensorFlow, with tf.estimator in place, and what is to be tf.contrib."""
        super().__init__("tensorflow", real.__doc__)
        self.__file__ = real.__file__
        self.__path__ = real.__path__
        self.__spec__ = real.__spec__
        self.__version__ = vars(real)["__version__"]
        self.contrib = contrib
        # tf.compat of version 1 leads to other modules, which lack what was put into these.
        self.compat = real.compat
        self._v1: ModuleType = real.compat.v1
        self._real = real

    def __getattr__(self, name: str) -> Any:
        for module in (self._v1, self._real):
            try:
                found = getattr(module, name)
            except AttributeError:
                continue
            # Later uses take as long as those of any module.
            setattr(self, name, found)
            return found
        near = difflib.get_close_matches(name, dir(self), n=3)
        hint = f". Did you mean {' or '.join(near)}?" if near else ""
        raise AttributeError(f"module 'tensorflow' has no attribute {name!r}{hint}")

    def __dir__(self) -> list[str]:
        own = {"contrib", "compat"}
        return sorted({*own, *dir(self._v1), *dir(self._real)})

    def module(self, path: str) -> ModuleType | None:
        """The public module of a dotted path, "train" or "nn.rnn_cell"; None if it is none."""
        found: Any = self
        for part in path.split("."):
            found = getattr(found, part, None)
        return found if isinstance(found, ModuleType) else None
