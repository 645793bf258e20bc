"""A limit for the size of pages that web servers send, such as listings of directories."""

import asyncio

import aiohttp

from tpuserve.errors import Unavailable

_MAX_BYTES = 4 << 20
_SECONDS = 60
_CHUNK_BYTES = 1 << 16


class BoundedResponse(aiohttp.ClientResponse):
    """A response whose `read` refuses a large body, so that an endless page cannot fill the memory.

    The files of models are not limited, because downloads do not call `read`.
    """

    async def read(self) -> bytes:
        """Return the body of the response.

        Raises:
          Unavailable: the body has more than 4 MiB, or has not arrived within 60 seconds.
        """
        if self._body is None:
            try:
                async with asyncio.timeout(_SECONDS):
                    self._body = await self._read_page()
            except BaseException as error:
                self.close()
                if isinstance(error, TimeoutError):
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

    def _error(self, reason: str) -> Unavailable:
        return Unavailable(f"{self.url} cannot be read: {reason}. Check the web server.")
