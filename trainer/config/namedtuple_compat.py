"""What programs expect of classes that tf.estimator had as named tuples."""

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

from tpuserve.errors import InvalidSetting

_Fields = TypeVar("_Fields", bound="NamedTupleMixin")


class _FieldNames:
    """The names of a dataclass's fields, those that only we have left out."""

    def __get__(self, instance: Any, owner: Any) -> tuple[str, ...]:
        return tuple(each.name for each in dataclasses.fields(owner) if not each.kw_only)


class NamedTupleMixin:
    """For a frozen dataclass: its fields in order, as a named tuple has them.

    Attributes:
      _fields: the names of the fields that can be given by place.
    """

    _fields = _FieldNames()

    def _asdict(self) -> dict[str, Any]:
        """Field name → value."""
        return {name: getattr(self, name) for name in self._fields}

    def _replace(self: _Fields, **changes: Any) -> _Fields:
        """The same with some fields changed.

        Raises:
          InvalidSetting: there is no such field.
        """
        names = [each.name for each in dataclasses.fields(self)]  # type: ignore[arg-type]
        unknown = sorted(set(changes) - set(names))
        if unknown:
            raise InvalidSetting(
                f"{type(self).__name__} has no field {', '.join(unknown)}. It has "
                f"{', '.join(names)}."
            )
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def __iter__(self) -> Iterator[Any]:
        """The values."""
        return iter([getattr(self, name) for name in self._fields])

    def __len__(self) -> int:
        """How many there are."""
        return len(self._fields)

    def __getitem__(self, place: Any) -> Any:
        """The value at a place, or a tuple of those in a slice."""
        return tuple(self)[place]
