"""The settings of the server on which the OpenAPI document depends."""

from collections.abc import Sequence
from typing import NamedTuple


class DocumentOptions(NamedTuple):
    """The settings of the server on which the OpenAPI document depends.

    Attributes:
      requires_keys: Whether requests need an API key, sent as a bearer token.
      allows_control: Whether clients may load and unload models.
      has_console: Whether the server has a console.
      metrics_paths: The URL paths of the metrics. Empty if the server has no metrics.
    """

    requires_keys: bool = False
    allows_control: bool = False
    has_console: bool = True
    metrics_paths: Sequence[str] = ()
