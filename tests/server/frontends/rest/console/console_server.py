"""A server in the test's process."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from server.app import Server
from server.config.settings import Settings
from server.process import ports


class ConsoleServer(ExitStack):
    """A server in this process, which serves all versions of its models over REST.

    Attributes:
      port: the REST port.
    """

    def __init__(self, directory: Path, base_paths: Mapping[str, Path], **settings: Any) -> None:
        """Start a server.

        Args:
          directory: where to write the model config file.
          base_paths: model name → base path.
          settings: further settings.
        """
        super().__init__()
        config = directory / "models.conf"
        configs = (
            f'config: {{name: "{name}", base_path: "{base_path}", model_platform: "tensorflow", '
            "model_version_policy: {all: {}}}"
            for name, base_path in base_paths.items()
        )
        config.write_text(f"model_config_list: {{{' '.join(configs)}}}")
        with ports.bind_port("127.0.0.1", 0, "--rest_api_port") as reserved:
            self.port: int = reserved.getsockname()[1]
        server = Server(
            Settings(
                model_config_file=str(config),
                port=0,
                rest_api_port=self.port,
                host="127.0.0.1",
                max_num_load_retries=0,
                **settings,
            ),
            None,
            pytest.fail,
        )
        server.start()
        self.callback(server.stop)
