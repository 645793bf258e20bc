"""Many items of one key do not delay the items of another key."""

from server.scheduling.fair_queue import FairQueue


def test_keys_take_turns_and_items_of_a_key_keep_their_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for key, item in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")]:
        queue.put(key, item)
    assert [queue.pop() for _ in range(3)] == ["a1", "b1", "a2"]
    queue.put("c", "c1")
    assert [queue.pop() for _ in range(4)] == ["b2", "a3", "c1", None]
