"""Responses of web servers whose bodies are pages, and not files of models."""

import asyncio

import aiohttp

from tpuserve.errors import StorageUnavailable

_MAX_BYTES = 4 << 20
_SECONDS = 60
_CHUNK_BYTES = 1 << 16


class BoundedResponse(aiohttp.ClientResponse):
    """A response whose body has a largest size, so that an endless body does not fill the memory.

    Downloads of files do not call `read`.
    """

    async def read(self) -> bytes:
        """Return the body.

        Raises:
          StorageUnavailable: the body is too large, or takes too long.
        """
        if self._body is None:
            try:
                self._body = await asyncio.wait_for(self._read_page(), _SECONDS)
            except BaseException as error:
                self.close()
                if isinstance(error, asyncio.TimeoutError):
                    raise self._error(f"the page did not arrive within {_SECONDS} s") from error
                raise
        return await super().read()

    async def _read_page(self) -> bytes:
        page = bytearray()
        async for chunk in self.content.iter_chunked(_CHUNK_BYTES):
            page += chunk
            if len(page) > _MAX_BYTES:
                raise self._error(f"the page has more than {_MAX_BYTES} bytes")
        return bytes(page)

    def _error(self, reason: str) -> StorageUnavailable:
        return StorageUnavailable(f"{self.url} cannot be read: {reason}. Check the web server.")
