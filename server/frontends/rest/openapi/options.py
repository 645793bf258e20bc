"""The settings of the server on which the OpenAPI document depends."""

from typing import NamedTuple


class DocumentOptions(NamedTuple):
    """The settings of the server on which the OpenAPI document depends.

    Attributes:
      requires_keys: Whether requests need an API key, sent as a bearer token.
      has_console: Whether the server has a console.
    """

    requires_keys: bool = False
    has_console: bool = True
