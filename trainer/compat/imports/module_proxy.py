"""The module that a TensorFlow 1 program gets for `import tensorflow as tf`."""

import difflib
from types import ModuleType
from typing import Any


class TensorFlow1Proxy(ModuleType):
    """A stand-in for the module tensorflow that has the symbols of TensorFlow 1 and 2.

    If both versions have a symbol, the stand-in has TensorFlow 1's. The modules of a program and of
    packages that are written for TensorFlow 1 get the stand-in when they import tensorflow.
    """

    def __init__(self, tensorflow: ModuleType, contrib: ModuleType) -> None:
        super().__init__("tensorflow", tensorflow.__doc__)
        self.__file__ = tensorflow.__file__
        self.__path__ = tensorflow.__path__
        self.__spec__ = tensorflow.__spec__
        self.__version__ = vars(tensorflow)["__version__"]
        self.contrib = contrib
        # Use the tf.compat of TensorFlow 2.
        self.compat = tensorflow.compat
        self._v1: ModuleType = tensorflow.compat.v1
        self._tensorflow = tensorflow

    def __getattr__(self, name: str) -> Any:
        for module in (self._v1, self._tensorflow):
            try:
                value = getattr(module, name)
            except AttributeError:
                continue
            # Store the value as an attribute of the stand-in, so that Python does not call
            # __getattr__ for the name again.
            setattr(self, name, value)
            return value
        matches = difflib.get_close_matches(name, dir(self), n=3)
        hint = f". Did you mean {' or '.join(matches)}?" if matches else ""
        raise AttributeError(f"module 'tensorflow' has no attribute {name!r}{hint}")

    def __dir__(self) -> list[str]:
        return sorted({"contrib", "compat", *dir(self._v1), *dir(self._tensorflow)})

    def get_submodule(self, path: str) -> ModuleType | None:
        """Return the public module at a dotted path, such as "nn.rnn_cell".

        Returns None if there is no module at that path.
        """
        value: Any = self
        for part in path.split("."):
            value = getattr(value, part, None)
        return value if isinstance(value, ModuleType) else None
