"""HParams, a class for hyperparameters, each of which keeps the type of its first value."""

import difflib
import json
import numbers
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpuserve.errors import InvalidSetting

__all__ = ["HParams", "parse_values"]

_ASSIGNMENT = re.compile(
    r"(?P<name>[a-zA-Z][\w.]*)\s*(?:\[\s*(?P<index>\d+)\s*\])?\s*=\s*"
    r"(?:\[(?P<list>[^\]]*)\]|(?P<value>[^,\[]*))\s*(?:$|,)\s*"
)
_BOOLEANS = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}


def parse_values(
    values: str, type_map: Mapping[str, type], ignore_unknown: bool = False
) -> dict[str, Any]:
    """Parse assignments such as "a=1,b=[x,y],c[2]=3.5".

    Args:
      type_map: name of a hyperparameter → type of its value; for a list, the type of its elements.

    Returns:
      A dict of name → value. For the assignment of a whole list the value is a list. For the
      assignment of single elements, such as "c[2]=3.5", the value is a dict of index → element.
    """
    parsed: dict[str, Any] = {}
    position = 0
    while position < len(values):
        match = _ASSIGNMENT.match(values, position)
        if match is None:
            raise InvalidSetting(
                f"Cannot parse hyperparameters {values!r} from {values[position:]!r} on. Write "
                f"name=value, name=[value,value] or name[index]=value, separated by commas."
            )
        position = match.end()
        name = match["name"]
        if name not in type_map:
            if ignore_unknown:
                continue
            raise unknown_hparam_error(name, type_map)
        _store_assignment(parsed, match, type_map[name])
    return parsed


def _store_assignment(parsed: dict[str, Any], match: re.Match[str], value_type: type) -> None:
    name, index = match["name"], match["index"]
    if match["list"] is not None:
        if index is not None:
            raise InvalidSetting(
                f"Hyperparameter {match[0]!r} assigns a list to one index. Assign a single value."
            )
        texts = [text.strip() for text in match["list"].split(",")]
        value: Any = [_parse_value(name, text, value_type) for text in texts if text]
    else:
        value = _parse_value(name, match["value"].strip(), value_type)
    if index is None and name not in parsed:
        parsed[name] = value
        return
    elements = parsed.setdefault(name, {}) if index is not None else None
    if not isinstance(elements, dict) or int(index) in elements:
        raise InvalidSetting(f"Hyperparameter {name} is set more than once. Set it once.")
    elements[int(index)] = value


def _parse_value(name: str, text: str, value_type: type) -> Any:
    if value_type is bool and text in _BOOLEANS:
        return _BOOLEANS[text]
    try:
        if value_type is not bool:
            return _infer_value(text) if value_type is type(None) else value_type(text)
    except ValueError:
        pass
    raise _wrong_type_error(name, text, value_type)


def _infer_value(text: str) -> Any:
    """Convert a text to an int or a float if possible; otherwise return the text."""
    for value_type in (int, float):
        try:
            return value_type(text)
        except ValueError:
            continue
    return text


def unknown_hparam_error(name: str, known: Mapping[str, Any]) -> InvalidSetting:
    """Return an error that names an unknown hyperparameter and suggests similar names."""
    similar = difflib.get_close_matches(name, known, n=3)
    names = (
        f"Did you mean {' or '.join(similar)}?"
        if similar
        else f"The hyperparameters are {', '.join(known)}."
    )
    return InvalidSetting(f"Unknown hyperparameter: {name}. {names}")


class HParams:
    """Holds named hyperparameters, which are also attributes of the object.

    A hyperparameter keeps the type of its first value.

    Args:
      hparam_def: must be None. The protocol buffer HParamDef was part of tf.contrib only.
    """

    if TYPE_CHECKING:
        # Declare __getattr__ for type checkers, because the hyperparameters become attributes only
        # at run time.
        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **values: Any) -> None:
        if hparam_def is not None:
            raise InvalidSetting(
                f"HParams got hparam_def={hparam_def!r}, but HParamDef is not supported. Pass the "
                f"values by name, or use parse_json."
            )
        self._types: dict[str, tuple[type, bool]] = {}
        self._model_structure = model_structure
        for name, value in values.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a hyperparameter; all its later values must have the type of `value`.

        A hyperparameter whose value is None may be added again.
        """
        if getattr(self, name, None) is not None:
            raise InvalidSetting(
                f"Hyperparameter name {name} is taken or reserved. Use another name."
            )
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise InvalidSetting(
                f"Hyperparameter {name} is an empty list. Give the list at least one value."
            )
        self._types[name] = type(value[0] if is_list else value), is_list
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Set a hyperparameter.

        Raises:
          InvalidSetting: the hyperparameter does not exist, or the value cannot be converted to the
            hyperparameter's type.
        """
        value_type, is_list = self._hparam_type(name)
        if isinstance(value, (list, tuple)) != is_list:
            advice = "Use a list" if is_list else "Use a single value, no list"
            raise InvalidSetting(f"Hyperparameter {name} was set to {value!r}. {advice}.")
        if is_list:
            value = [_cast(name, value_type, element) for element in value]
        else:
            value = _cast(name, value_type, value)
        setattr(self, name, value)

    def del_hparam(self, name: str) -> None:
        """Remove a hyperparameter if it exists."""
        if self._types.pop(name, None) is not None:
            delattr(self, name)

    def parse(self, values: str) -> "HParams":
        """Set hyperparameters from assignments such as "a=1,b=[x,y],c[2]=3.5", and return self.

        Raises:
          InvalidSetting: the syntax is wrong, a hyperparameter does not exist, a value is not of
            the hyperparameter's type, or an index is beyond the end of a list.
        """
        type_map = {name: value_type for name, (value_type, _) in self._types.items()}
        return self.override_from_dict(parse_values(values, type_map))

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> "HParams":
        """Set hyperparameters and return self.

        Args:
          values_dict: name of a hyperparameter → value. For a list, the value may be a dict of
            index → element, which sets only these elements.

        Raises:
          InvalidSetting: a hyperparameter does not exist, or a value cannot be converted to the
            hyperparameter's type.
        """
        for name, value in values_dict.items():
            self.set_hparam(name, self._expand_indices(name, value))
        return self

    def set_from_map(self, values_map: Mapping[str, Any]) -> "HParams":
        """Set hyperparameters and return self.

        This method is a deprecated name of `override_from_dict`.
        """
        return self.override_from_dict(values_map)

    def parse_json(self, values_json: str) -> "HParams":
        """Set hyperparameters from a JSON object, and return self."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        """Return the hyperparameters as a JSON object of name → value.

        The arguments are those of json.dumps.
        """
        return json.dumps(
            {name: _to_python(value) for name, value in self.values().items()},
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def values(self) -> dict[str, Any]:
        """Return a dict of hyperparameter name → value."""
        return {name: getattr(self, name) for name in self._types}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a hyperparameter, or the default if the hyperparameter does not exist."""
        if key not in self._types:
            return default
        value_type, is_list = self._types[key]
        if default is not None:
            if isinstance(default, list) != is_list:
                raise InvalidSetting(
                    f"Hyperparameter {key} is {'a list' if is_list else 'not a list'}, but the "
                    f"default is {default!r}. Use a default of the same type."
                )
            for element in default if is_list else [default]:
                _cast(key, value_type, element)
        return getattr(self, key)

    def set_model_structure(self, model_structure: Any) -> None:
        """Store any object that describes the model; HParams does not use the object."""
        self._model_structure = model_structure

    def get_model_structure(self) -> Any:
        """Return the object that the program has stored by `set_model_structure`."""
        return self._model_structure

    def _hparam_type(self, name: str) -> tuple[type, bool]:
        if name not in self._types:
            raise unknown_hparam_error(name, self._types)
        return self._types[name]

    def _expand_indices(self, name: str, value: Any) -> Any:
        """Return the complete new value of a hyperparameter."""
        _, is_list = self._hparam_type(name)
        if not is_list or not isinstance(value, Mapping):
            return value
        elements = list(getattr(self, name))
        for index, element in value.items():
            if index >= len(elements):
                raise InvalidSetting(
                    f"Hyperparameter {name} has {len(elements)} values, but {name}[{index}] was "
                    f"set. Use a lower index, or set the whole list."
                )
            elements[index] = element
        return elements

    def __contains__(self, key: object) -> bool:
        return key in self._types

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.values().items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({sorted(self.values().items())})"


def _cast(name: str, value_type: type, value: Any) -> Any:
    """Convert a value to a hyperparameter's type."""
    if value_type is type(None) or isinstance(value, value_type) and value_type is not int:
        return value
    is_number = isinstance(value, (int, float)) or hasattr(value, "dtype")
    try:
        if is_number and not isinstance(value, bool) and value_type in (int, float):
            if value_type is float or isinstance(value, numbers.Integral):
                return value_type(value)
        elif value_type not in (int, float, bool, str):
            return value_type(value)
    except (TypeError, ValueError):
        pass
    raise _wrong_type_error(name, value, value_type)


def _to_python(value: Any) -> Any:
    """Convert a NumPy scalar to a Python number; return other values unchanged."""
    return value.item() if hasattr(value, "item") else value


def _wrong_type_error(name: str, value: Any, value_type: type) -> InvalidSetting:
    return InvalidSetting(
        f"Hyperparameter {name} is of type {value_type.__name__} and cannot be {value!r}. Use a "
        f"value of that type."
    )
