"""Each canonical error code is mapped to an HTTP status."""

import json

from server.frontends.rest.errors import HTTP_STATUS, error_response
from tpuserve.errors import Code


def test_every_code_is_mapped() -> None:
    assert set(HTTP_STATUS) == set(Code)


def test_message_may_quote_any_characters() -> None:
    body = error_response(400, 'a "b" \ud800 ü').body
    assert json.loads(body) == {"error": 'a "b" ? ü'}
    assert body.startswith(b'{\n    "error": "')
