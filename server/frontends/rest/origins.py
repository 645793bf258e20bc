"""Refuses what pages of other sites let a browser send to this server."""

import ipaddress
from collections.abc import Collection

from server.frontends.rest.transport.responses import Headers, get_header
from tpuserve.errors import ForeignRequest, InvalidInput

# The types that a page may send to another site without asking first, as its forms do. Source: the
# "CORS-safelisted request-headers" of https://fetch.spec.whatwg.org.
_TYPES_OF_FORMS = (
    b"text/plain",
    b"application/x-www-form-urlencoded",
    b"multipart/form-data",
)
_OWN_SITES = (None, b"same-origin", b"none")


def check_host(headers: Headers, allowed_hosts: Collection[str]) -> None:
    """Refuse a request whose Host is a name that is not allowed, as after DNS rebinding.

    IP addresses and localhost are always allowed: no site can let its name be one of them.
    """
    host = (get_header(headers, b"host") or b"").decode("latin-1")
    name = _name_of(host)
    if name in allowed_hosts or name in ("", "localhost"):
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise ForeignRequest(
            f"the request's Host is {host[:128]!r}, which --allowed_hosts does not name. Send the "
            f"request to the server's IP address, or start the server with "
            f"--allowed_hosts={name[:128]}."
        ) from None


def check_change(headers: Headers, allowed_hosts: Collection[str]) -> None:
    """Refuse a request that would change the server if a page of another site may have sent it."""
    origin, site = get_header(headers, b"origin"), get_header(headers, b"sec-fetch-site")
    page = (origin or b"").partition(b"://")[2]
    is_own = origin is None or page == get_header(headers, b"host")
    # A proxy may change the Host, so that pages of an allowed name are the server's own as well.
    if site not in _OWN_SITES or not (is_own or _name_of(page.decode("latin-1")) in allowed_hosts):
        raise ForeignRequest(
            f"a page of {(origin or b'another site').decode('latin-1')[:128]} has sent a request "
            f"that would change this server. Send it from a page of the server itself, or from a "
            f"program."
        )
    if origin is not None or site is not None:
        check_host(headers, allowed_hosts)
    kind = get_header(headers, b"content-type")
    if kind and kind.partition(b";")[0].strip().lower() in _TYPES_OF_FORMS:
        raise InvalidInput(
            f"the Content-Type is {kind.decode('latin-1')[:128]!r}. Send application/json."
        )


def _name_of(host: str) -> str:
    """Return the name, in lower case, or the IP address of a host that may have a port."""
    return host[1:].partition("]")[0] if host[:1] == "[" else host.partition(":")[0].lower()
