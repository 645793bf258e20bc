"""Names that programs for TensorFlow 1 use and that Python and NumPy have removed since.

If a name has an exact replacement, `supply_names` adds the name to its module. For other names,
there are sentences that say what to use instead.
"""

import base64
import collections
import collections.abc
import fractions
import importlib
import inspect
import math
import sys
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

NUMPY = "numpy"

_ArgSpec = collections.namedtuple("_ArgSpec", "args varargs keywords defaults")


def _get_arg_spec(function: Callable[..., Any]) -> _ArgSpec:
    """Return the arguments of a function, as Python's removed inspect.getargspec did."""
    spec = inspect.getfullargspec(function)
    if spec.kwonlyargs:
        raise ValueError(
            f"{function!r} has the keyword-only arguments {', '.join(spec.kwonlyargs)}, which "
            f"inspect.getargspec cannot return. Use inspect.signature."
        )
    return _ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


_PYTHON: Mapping[ModuleType, Mapping[str, Any]] = {
    base64: {"decodestring": base64.decodebytes, "encodestring": base64.encodebytes},
    collections: {name: getattr(collections.abc, name) for name in collections.abc.__all__},
    fractions: {"gcd": math.gcd},
    inspect: {"ArgSpec": _ArgSpec, "getargspec": _get_arg_spec},
    time: {"clock": time.process_time},
}

# Names that NumPy has removed: name → replacement, which is another name of NumPy or a Python type.
_NUMPY: Mapping[str, str | type] = {
    "Inf": "inf",
    "Infinity": "inf",
    "NaN": "nan",
    "PINF": "inf",
    "alltrue": "all",
    "bool": bool,
    "complex": complex,
    "complex_": "complex128",
    "cumproduct": "cumprod",
    "float": float,
    "float_": "float64",
    "infty": "inf",
    "int": int,
    "long": int,
    "mat": "asmatrix",
    "object": object,
    "product": "prod",
    "rank": "ndim",
    "round_": "round",
    "row_stack": "vstack",
    "sometrue": "any",
    "str": str,
    "string_": "bytes_",
    "trapz": "trapezoid",
    "unicode": str,
    "unicode_": "str_",
}

# Removed names that `supply_names` does not supply: full name → a sentence for the report of
# `tpuserve migrate`, which says what to use instead.
_ADVICE: Mapping[str, str] = {
    "cgi.escape": "Use html.escape.",
    "inspect.formatargspec": "Use inspect.signature.",
    "numpy.asfarray": "Use numpy.asarray(a, dtype=float).",
    "numpy.asscalar": "Use a.item().",
    "numpy.cast": "Use numpy.asarray(a, dtype).",
    "numpy.find_common_type": "Use numpy.result_type.",
    "numpy.in1d": "Use numpy.isin.",
    "numpy.loads": "Use pickle.loads.",
    "numpy.msort": "Use numpy.sort(a, axis=0).",
    "numpy.testing.Tester": "Use pytest.",
    "os.errno": "Import the module errno.",
    "os.getcwdu": "Use os.getcwd.",
    "platform.linux_distribution": "Use platform.freedesktop_os_release.",
    "string.letters": "Use string.ascii_letters.",
    "string.maketrans": "Use str.maketrans.",
    "sys.maxint": "Use sys.maxsize.",
    "sys.setdefaultencoding": "Remove the call: Python 3 uses UTF-8.",
}

# Modules that Python has removed: name → sentences for the report of `tpuserve migrate`, which say
# what to use instead.
REMOVED_MODULES: Mapping[str, str] = {
    "asynchat": "Python 3.12 removed it. Use asyncio.",
    "asyncore": "Python 3.12 removed it. Use asyncio.",
    "cgi": "Python 3.13 removed it. Use html and email.message.",
    "distutils": "Python 3.12 removed it. Install setuptools, which brings it.",
    "imghdr": "Python 3.13 removed it. Compare the first bytes of the file.",
    "imp": "Python 3.12 removed it. Use importlib.",
    "pipes": "Python 3.13 removed it. Use subprocess and shlex.",
    "smtpd": "Python 3.12 removed it. Use the package aiosmtpd.",
}

MODULES = frozenset(
    {name.partition(".")[0] for name in _ADVICE} | {module.__name__ for module in _PYTHON} | {NUMPY}
)
"""The modules that have lost names."""


# The full names that `supply_names` has added to modules, such as "numpy.product". Without this
# set, an added name could not be distinguished from a name that the installed module has itself.
_added: set[str] = set()


def supply_names() -> None:
    """Add removed names to modules of Python's standard library, and to NumPy if it is imported."""
    for module, names in _PYTHON.items():
        for name, value in names.items():
            if not hasattr(module, name):
                _add(module, name, value)
    numpy = sys.modules.get(NUMPY)
    if numpy is not None:
        supply_numpy_names(numpy)


def supply_numpy_names(numpy: ModuleType) -> None:
    """Restore names that NumPy has removed."""
    for name, replacement in _NUMPY.items():
        if name not in vars(numpy):
            value = getattr(numpy, replacement) if isinstance(replacement, str) else replacement
            _add(numpy, name, value)


def _add(module: ModuleType, name: str, value: Any) -> None:
    setattr(module, name, value)
    _added.add(f"{module.__name__}.{name}")


def find_supplied(name: str) -> str | None:
    """Return the name of the object that `supply_names` makes available under a removed name.

    Args:
      name: the full name, such as "numpy.product".

    Returns:
      The name of the replacement, such as "numpy.prod"; None if the installed Python or NumPy has
      the name itself, or if `supply_names` does not supply it.
    """
    module, _, attribute = name.rpartition(".")
    if module == NUMPY and attribute in _NUMPY:
        replacement = _NUMPY[attribute]
        text = f"numpy.{replacement}" if isinstance(replacement, str) else replacement.__name__
        return None if _exists(name) else text
    for python_module, names in _PYTHON.items():
        if module == python_module.__name__ and attribute in names and not _exists(name):
            value = names[attribute]
            return f"{value.__module__}.{value.__name__}"
    return None


def find_advice(name: str) -> str | None:
    """Return a sentence that says what replaces a removed name that `supply_names` does not supply.

    Args:
      name: the full name, such as "numpy.asscalar".

    Returns:
      The sentence; None if the installed Python or NumPy has the name, or if no replacement is
      known.
    """
    return None if name not in _ADVICE or _exists(name) else _ADVICE[name]


def _exists(name: str) -> bool:
    """Return whether the installed Python or NumPy itself has a name."""
    module_name, _, attribute = name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        return False
    return attribute in vars(module) and name not in _added
