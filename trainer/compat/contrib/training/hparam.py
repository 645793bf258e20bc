"""Hyperparameters that are attributes, and whose types are those of their first values."""

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
    """The values of "a=1,b=[x,y],c[2]=3.5": name → value, list, or index → value.

    Args:
      values: assignments, with commas between.
      type_map: name → type of the value, or of each in a list.
      ignore_unknown: whether names that have no type are left out, not refused.

    Raises:
      InvalidSetting: it is no list of assignments, a name is unknown or set twice, or a value
        is none of its type.
    """
    found: dict[str, Any] = {}
    position = 0
    while position < len(values):
        match = _ASSIGNMENT.match(values, position)
        if match is None:
            raise InvalidSetting(
                f"hyperparameters {values!r} cannot be read from {values[position:]!r} on. Write "
                f"name=value, name=[value,value] or name[index]=value, with commas between."
            )
        position = match.end()
        name = match["name"]
        if name not in type_map:
            if ignore_unknown:
                continue
            raise unknown_hparam_error(name, type_map)
        _store_assignment(found, match, type_map[name])
    return found


def _store_assignment(found: dict[str, Any], match: re.Match[str], kind: type) -> None:
    name, index = match["name"], match["index"]
    if match["list"] is not None:
        if index is not None:
            raise InvalidSetting(f"hyperparameter {match[0]!r} has a list for one place. Give one.")
        texts = [each.strip() for each in match["list"].split(",")]
        value: Any = [_parse_value(name, each, kind) for each in texts if each]
    else:
        value = _parse_value(name, match["value"].strip(), kind)
    if index is None and name not in found:
        found[name] = value
        return
    places = found.setdefault(name, {}) if index is not None else None
    if not isinstance(places, dict) or int(index) in places:
        raise InvalidSetting(f"hyperparameter {name} is set more than once. Set it once.")
    places[int(index)] = value


def _parse_value(name: str, text: str, kind: type) -> Any:
    if kind is bool and text in _BOOLEANS:
        return _BOOLEANS[text]
    try:
        if kind is not bool:
            return _infer_value(text) if kind is type(None) else kind(text)
    except ValueError:
        pass
    raise InvalidSetting(f"hyperparameter {name} is {text!r}. Give a {kind.__name__}.")


def _infer_value(text: str) -> Any:
    """The value of a text whose type nothing tells."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def unknown_hparam_error(name: str, known: Mapping[str, Any]) -> InvalidSetting:
    """The error that says that no hyperparameter has a name."""
    near = difflib.get_close_matches(name, known, n=3)
    names = f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(known)}."
    return InvalidSetting(f"Unknown hyperparameter: {name}. {names}")


class HParams:
    """Named values, read and set as attributes.

    `HParams(rate=0.1, sizes=[8, 4])` has a rate that stays a float and sizes that stay a list of
    ints, whatever it is set to by `parse`, `set_hparam` or `override_from_dict`.
    """

    if TYPE_CHECKING:
        # Which attributes there are is known only when it runs.
        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **values: Any) -> None:
        """Holds the given values.

        Args:
          hparam_def: None; HParamDef, a protocol buffer, went with tf.contrib.
          model_structure: anything; see `get_model_structure`.
          values: name → value, or list of values of one type.
        """
        if hparam_def is not None:
            raise InvalidSetting(
                f"HParams hparam_def is {hparam_def!r}, and HParamDef is not read here. Give the "
                f"values by name, or use parse_json."
            )
        self._types: dict[str, tuple[type, bool]] = {}
        self._model_structure = model_structure
        for name, value in values.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a hyperparameter, whose type is the value's.

        Raises:
          InvalidSetting: the name is taken, or the value an empty list.
        """
        if hasattr(self, name):
            raise InvalidSetting(f"hyperparameter {name} is reserved or there. Take another name.")
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise InvalidSetting(f"hyperparameter {name} is an empty list. Give it a value.")
        self._types[name] = type(value[0] if is_list else value), is_list
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Sets a hyperparameter.

        Raises:
          InvalidSetting: there is none of that name, or the value is of another type.
        """
        kind, is_list = self._hparam_type(name)
        if isinstance(value, (list, tuple)) != is_list:
            wanted = "a list" if is_list else "no list"
            raise InvalidSetting(f"hyperparameter {name} is {value!r}. Give {wanted}.")
        cast = [_cast(name, kind, each) for each in value] if is_list else _cast(name, kind, value)
        setattr(self, name, cast)

    def del_hparam(self, name: str) -> None:
        """Takes a hyperparameter away, if it is there."""
        if self._types.pop(name, None) is not None:
            delattr(self, name)

    def parse(self, values: str) -> "HParams":
        """Itself, with the values of "a=1,b=[x,y],c[2]=3.5".

        Raises:
          InvalidSetting: see `parse_values`; also a place that a list has not.
        """
        found = parse_values(values, {name: kind for name, (kind, _) in self._types.items()})
        return self.override_from_dict(found)

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> "HParams":
        """Itself, with the given values: name → value, or index → value for some of a list.

        Raises:
          InvalidSetting: see `set_hparam`.
        """
        for name, value in values_dict.items():
            self.set_hparam(name, self._expand_indices(name, value))
        return self

    def set_from_map(self, values_map: Mapping[str, Any]) -> "HParams":
        """The old name of `override_from_dict`."""
        return self.override_from_dict(values_map)

    def parse_json(self, values_json: str) -> "HParams":
        """Itself, with the values of a JSON object."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        """The values as a JSON object; the arguments are those of json.dumps."""
        return json.dumps(
            {name: _to_python(value) for name, value in self.values().items()},
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def values(self) -> dict[str, Any]:
        """Name → value."""
        return {name: getattr(self, name) for name in self._types}

    def get(self, key: str, default: Any = None) -> Any:
        """A value, or the default where there is none.

        Raises:
          InvalidSetting: the default could not be the value of that hyperparameter.
        """
        if key not in self._types:
            return default
        kind, is_list = self._types[key]
        if default is not None:
            if isinstance(default, list) != is_list:
                raise InvalidSetting(
                    f"hyperparameter {key} has the default {default!r}, and is "
                    f"{'a' if is_list else 'no'} list. Give a default of its type."
                )
            for each in default if is_list else [default]:
                _cast(key, kind, each)
        return getattr(self, key)

    def set_model_structure(self, model_structure: Any) -> None:
        """Keeps it."""
        self._model_structure = model_structure

    def get_model_structure(self) -> Any:
        """What was given as model_structure."""
        return self._model_structure

    def _hparam_type(self, name: str) -> tuple[type, bool]:
        if name not in self._types:
            raise unknown_hparam_error(name, self._types)
        return self._types[name]

    def _expand_indices(self, name: str, value: Any) -> Any:
        _, is_list = self._hparam_type(name)
        if not is_list or not isinstance(value, Mapping):
            return value
        whole = list(getattr(self, name))
        for index, each in value.items():
            if index >= len(whole):
                raise InvalidSetting(
                    f"hyperparameter {name} has {len(whole)} values, and no {name}[{index}]. "
                    f"Give a lower index, or the whole list."
                )
            whole[index] = each
        return whole

    def __contains__(self, key: object) -> bool:
        return key in self._types

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.values().items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({sorted(self.values().items())})"


def _cast(name: str, kind: type, value: Any) -> Any:
    """A value as one of a type; an int is a float too, and nothing else changes its kind."""
    if kind is type(None) or isinstance(value, kind) and kind is not int:
        return value
    is_number = isinstance(value, (int, float)) or hasattr(value, "dtype")
    try:
        if is_number and not isinstance(value, bool) and kind in (int, float):
            if kind is float or isinstance(value, numbers.Integral):
                return kind(value)
        elif kind not in (int, float, bool, str):
            return kind(value)
    except (TypeError, ValueError):
        pass
    raise InvalidSetting(f"hyperparameter {name} is {value!r}. Give a {kind.__name__}.")


def _to_python(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
