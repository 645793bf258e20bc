"""A queue of items with keys, from which items of all keys are taken in turn."""

import threading
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """A queue of items with keys, for example responses with models as keys. Thread-safe.

    Items are taken from all keys in turn (round robin), so that many items of one key do not delay
    the items of another key.
    """

    def __init__(self) -> None:
        # Key → its items, for the keys that have items. `pop` takes an item of the first key.
        self._items: dict[Hashable, deque[Item]] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Return whether the queue has at least one item."""
        return bool(self._items)

    def put(self, key: Hashable, item: Item) -> None:
        """Append an item with a key; it comes after the earlier items with this key."""
        with self._lock:
            self._items.setdefault(key, deque()).append(item)

    def pop(self) -> Item | None:
        """Remove and return the first item of the next key; return None if the queue is empty."""
        with self._lock:
            if not self._items:
                return None
            key, items = next(iter(self._items.items()))
            item = items.popleft()
            # Move the key to the end of the order, so that an item of each other key is taken
            # first.
            del self._items[key]
            if items:
                self._items[key] = items
            return item
