"""Reads the addresses of the hosts that run one program together, and the number of this host.

The addresses are in environment variables that `tpuserve run` or Google Kubernetes Engine sets.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tpuserve.errors import InvalidSetting

HOSTS_VARIABLE, HOST_INDEX_VARIABLE = "TPUSERVE_HOSTS", "TPUSERVE_HOST_INDEX"
"""The environment variables that `tpuserve run` sets."""

# The environment variables that Google Kubernetes Engine sets on the machines of a TPU.
_WORKERS_VARIABLE, _WORKER_INDEX_VARIABLE = "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID"

DEFAULT_PORT = 8490
"""The port of host 0 if its address has no port."""


@dataclass(frozen=True)
class HostAddresses:
    """The hosts that run a program together; each runs one process of the program."""

    index: int
    addresses: tuple[str, ...]

    @property
    def first(self) -> tuple[str, int]:
        """The name and the port at which host 0 waits for the other hosts."""
        name, _, port = self.addresses[0].rpartition(":")
        return (name.strip("[]"), int(port)) if name else (self.addresses[0], DEFAULT_PORT)

    def describe(self, index: int) -> str:
        """Return the number and the address of a host, for messages."""
        return f"host {index} ({self.addresses[index]})"


def read_host_addresses(environ: Mapping[str, str]) -> HostAddresses | None:
    """Read the hosts' addresses and the number of this host from environment variables.

    The variables are TPUSERVE_HOSTS and TPUSERVE_HOST_INDEX or, if TPUSERVE_HOSTS has fewer than
    two addresses, TPU_WORKER_HOSTNAMES and TPU_WORKER_ID.

    Returns:
      None if the variables are not set or name a single host.

    Raises:
      InvalidSetting: the number of this host is missing or out of range, an address is empty, or
        the port of host 0 is not a number.
    """
    for addresses_variable, index_variable in (
        (HOSTS_VARIABLE, HOST_INDEX_VARIABLE),
        (_WORKERS_VARIABLE, _WORKER_INDEX_VARIABLE),
    ):
        addresses = tuple(part.strip() for part in environ.get(addresses_variable, "").split(","))
        if len(addresses) > 1:
            text = environ.get(index_variable, "").strip()
            _check_addresses(addresses_variable, addresses, index_variable, text)
            return HostAddresses(int(text), addresses)
    return None


def _check_addresses(
    addresses_variable: str, addresses: tuple[str, ...], index_variable: str, index: str
) -> None:
    """Check the addresses of all hosts and the number of this host."""
    if not all(addresses):
        raise InvalidSetting(
            f"{addresses_variable} is {','.join(addresses)!r}, which has an empty address. Give "
            f"the address of each host, with commas between them."
        )
    if not index.isdecimal() or int(index) >= len(addresses):
        raise InvalidSetting(
            f"{addresses_variable} has {len(addresses)} addresses, and {index_variable} is "
            f"{index!r}. Set {index_variable} to the number of this host, from 0 to "
            f"{len(addresses) - 1}."
        )
    check_port(addresses_variable, addresses[0])


def check_port(source: str, address: str) -> None:
    """Check that the port in the address of host 0, if there is one, is a number."""
    name, _, port = address.rpartition(":")
    if name and not (port.isdecimal() and 1 <= int(port) <= 65_535):
        raise InvalidSetting(
            f"The address of host 0 in {source} is {address!r}. Give NAME or NAME:PORT."
        )
