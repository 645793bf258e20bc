"""A queue from which the items of all keys are taken in turn."""

import threading
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Holds items by key, for example responses by model. Thread-safe.

    Each key has its turn after every other key with items, so many items of one key do not delay
    the items of another key. The items of a key keep their order.
    """

    def __init__(self) -> None:
        """Create an empty queue."""
        # The keys with items, in the order of their turns.
        self._items: dict[Hashable, deque[Item]] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Return whether the queue has an item."""
        return bool(self._items)

    def put(self, key: Hashable, item: Item) -> None:
        """Append an item to the items of a key."""
        with self._lock:
            self._items.setdefault(key, deque()).append(item)

    def pop(self) -> Item | None:
        """Remove the first item of the key whose turn it is; return None if the queue is empty."""
        with self._lock:
            if not self._items:
                return None
            key, items = next(iter(self._items.items()))
            item = items.popleft()
            # Move the key to the end of the order.
            del self._items[key]
            if items:
                self._items[key] = items
            return item
