"""Items of all keys come in turn, those of one key in order, and any item can leave."""

from server.scheduling.model_queue import Turns


def take_all(turns: Turns[str]) -> str:
    order = ""
    while turns:
        item = turns.first
        assert turns.remove(item[0], item)
        order += item + " "
    return order


def test_keys_take_turns() -> None:
    turns: Turns[str] = Turns()
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        turns.push(item[0], item)
    assert len(turns) == 6
    assert take_all(turns) == "a1 b1 c1 a2 c2 a3 "


def test_any_item_can_leave_once() -> None:
    turns: Turns[str] = Turns()
    for item in ("a1", "a2", "b1"):
        turns.push(item[0], item)
    assert turns.remove("a", "a2")
    assert not turns.remove("a", "a2")
    assert not turns.remove("c", "c1")
    assert sorted(turns) == ["a1", "b1"]
