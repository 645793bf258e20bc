"""Gives dataclasses the methods that they have in tf.estimator, where they are named tuples."""

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

from tpuserve.errors import InvalidSetting

_Self = TypeVar("_Self", bound="NamedTupleMixin")


class _FieldNames:
    """Descriptor of `_fields`: returns the names of a dataclass's positional fields as a tuple."""

    def __get__(self, instance: Any, owner: Any) -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(owner) if not field.kw_only)


class NamedTupleMixin:
    """Gives a frozen dataclass the methods of a named tuple.

    Some programs for tf.estimator use these methods, for example on a TPUConfig.
    """

    _fields = _FieldNames()

    def _asdict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._fields}

    def _replace(self: _Self, **changes: Any) -> _Self:
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        unknown = sorted(set(changes) - set(names))
        if unknown:
            raise InvalidSetting(
                f"{type(self).__name__} has no field {', '.join(unknown)}. It has "
                f"{', '.join(names)}."
            )
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the values of the positional fields."""
        return iter([getattr(self, name) for name in self._fields])

    def __len__(self) -> int:
        """Return the number of positional fields."""
        return len(self._fields)

    def __getitem__(self, index: Any) -> Any:
        """Return the value of the field at an index, or a tuple of the values of a slice."""
        return tuple(self)[index]
