"""Waiting items with keys: items of all keys come in turn, and any item can leave."""

from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Turns(Generic[Item]):
    """The items that wait, each with a key, such as the client of a request. Not thread-safe.

    The first item of each key comes in turn (round robin), so that many items of one key do not
    delay those of another.
    """

    __slots__ = ("_items",)

    def __init__(self) -> None:
        # Key → its items, as ordered sets. The next turn is that of the first key.
        self._items: dict[Hashable, dict[Item, None]] = {}

    def __len__(self) -> int:
        """Return the number of items."""
        return sum(map(len, self._items.values()))

    def __iter__(self) -> Iterator[Item]:
        """Return an iterator over all items, key by key."""
        return chain.from_iterable(self._items.values())

    def push(self, key: Hashable, item: Item) -> None:
        """Append an item; a key without other items comes last."""
        self._items.setdefault(key, {})[item] = None

    @property
    def first(self) -> Item:
        """The item whose turn is next. There must be one."""
        return next(iter(next(iter(self._items.values()))))

    def remove(self, key: Hashable, item: Item) -> bool:
        """Remove an item, after which its key comes last; return whether it was there."""
        items = self._items.get(key)
        if items is None or item not in items:
            return False
        del items[item]
        del self._items[key]
        if items:
            self._items[key] = items
        return True
