"""Only requests with a valid API key are accepted."""

from pathlib import Path

import pytest

from server.admission.api_keys import ApiKeys
from tpuserve.errors import Code, InvalidSetting, Unauthenticated


def write_file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_file(tmp_path / "keys", "# of the web shop\nfirst\n\n  second  \n")


def is_accepted(keys: ApiKeys, authorization: str | None) -> bool:
    try:
        keys.authenticate(authorization)
    except Unauthenticated:
        return False
    return True


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("Bearer first", True),
        ("bearer  second ", True),
        (None, False),
        ("", False),
        ("Bearer", False),
        ("Bearer fir", False),
        ("Bearer firstsecond", False),
        ("Bearer # of the web shop", False),
        ("Basic first", False),
        ("first", False),
        ("Bearer k\udcffy", False),
    ],
)
def test_only_a_bearer_of_a_key_is_accepted(
    path: Path, authorization: str | None, expected: bool
) -> None:
    assert is_accepted(ApiKeys(path), authorization) is expected


def test_without_a_file_everybody_is_accepted() -> None:
    assert is_accepted(ApiKeys(None), None)


def test_refusal_says_what_to_send(path: Path) -> None:
    with pytest.raises(Unauthenticated, match="Authorization: Bearer KEY") as caught:
        ApiKeys(path).authenticate("Bearer other")
    assert caught.value.code is Code.UNAUTHENTICATED


def test_changed_file_is_read_again(path: Path) -> None:
    keys = ApiKeys(path)
    write_file(path, "third\n")
    assert is_accepted(keys, "Bearer third")
    assert not is_accepted(keys, "Bearer first")


@pytest.mark.parametrize("text", ["", "# no key\n"])
def test_emptied_file_keeps_the_previous_keys_and_logs_once(
    path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys = ApiKeys(path)
    write_file(path, text)
    assert is_accepted(keys, "Bearer first")
    assert not is_accepted(keys, "Bearer ")
    assert caplog.messages == [
        f"API keys: still using the previous keys, since {path} cannot be used: "
        f"the file holds no key"
    ]


def test_deleted_file_keeps_the_previous_keys_until_the_file_returns(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = ApiKeys(path)
    path.unlink()
    assert is_accepted(keys, "Bearer first")
    assert is_accepted(keys, "Bearer second")
    assert len(caplog.messages) == 1
    write_file(path, "third\n")
    assert is_accepted(keys, "Bearer third")
    assert not is_accepted(keys, "Bearer first")


@pytest.mark.parametrize("content", [None, b"", b"# none\n", b"\xff\xfe"])
def test_server_does_not_start_with_an_unusable_file(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidSetting, match="one key per line"):
        ApiKeys(path)
