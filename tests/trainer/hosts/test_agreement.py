import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.trainer.hosts.test_group import members, on_all
from tpuserve.errors import HostsDiffer
from trainer.execution import host_agreement
from trainer.hosts.group import HostGroup

FindOnHosts = Callable[..., list[Any]]


@pytest.fixture
def find_on_hosts(monkeypatch: pytest.MonkeyPatch) -> FindOnHosts:
    """Return a function that calls `find_same_checkpoint` on two hosts.

    The function takes, for each host, the checkpoint paths that its attempts find in turn, and
    returns the result or error of each host.
    """
    on_host = threading.local()
    monkeypatch.setattr(host_agreement, "_RETRY_SECS", 0)
    monkeypatch.setattr(host_agreement, "current_group", lambda: on_host.group)

    def find(*paths: list[str | None]) -> list[Any]:
        def call(group: HostGroup) -> Any:
            on_host.group = group
            attempts = itertools.chain(paths[group.index], itertools.repeat(paths[group.index][-1]))
            return host_agreement.find_same_checkpoint(
                lambda: next(attempts), f"/model_{group.index}"
            )

        with members(2) as (hosts, pool):
            return on_all(hosts, pool, call)

    return find


def test_a_host_that_sees_the_checkpoint_later_waits_for_it(find_on_hosts: FindOnHosts) -> None:
    late = [None, "/b/model.ckpt-5", "/b/model.ckpt-10"]
    assert find_on_hosts(["/a/model.ckpt-10"], late) == ["/a/model.ckpt-10", "/b/model.ckpt-10"]


def test_hosts_without_common_storage_are_told_their_directories(
    find_on_hosts: FindOnHosts,
) -> None:
    for error in find_on_hosts(["/a/model.ckpt-10"], [None]):
        assert isinstance(error, HostsDiffer)
        assert "has model.ckpt-10 in /model_0, and host 1 (host-1) has no checkpoint in" in str(
            error
        )
