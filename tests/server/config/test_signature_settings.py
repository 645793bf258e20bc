"""A policy of signatures and the key for it are given together."""

from pathlib import Path

import pytest

from server.config.settings import Settings
from tpuserve.errors import InvalidSetting


@pytest.mark.parametrize(
    ("policy", "key", "text"),
    [
        ("on", "", "--model_signature_policy is 'on'. Give off or require"),
        ("require", "", "is require and --model_signing_key is empty"),
        ("off", "key.pem", "is off and --model_signing_key is key.pem"),
    ],
)
def test_policy_and_key_that_contradict_are_refused(policy: str, key: str, text: str) -> None:
    with pytest.raises(InvalidSetting, match=text):
        Settings(Path("/models"), model_signature_policy=policy, model_signing_key=key)
