"""The commands in docs/storage.md run with real servers, and print the output in the document."""

import re
from collections.abc import Iterator

import pytest

from server.config import flags
from tests.documents.terminal import (
    ROOT,
    LogAndOutput,
    Step,
    check_output,
    read_sections,
    run_sections,
)

pytestmark = pytest.mark.slow

TEXT = (ROOT / "docs/storage.md").read_text()
LANES = [["Serve a bucket", "Request logs in a bucket"], ["Signed models"]]
SECTIONS = read_sections(TEXT)
COMMANDS = [step for steps in SECTIONS.values() for step in steps if not step.file]


@pytest.fixture(scope="module")
def bucket() -> Iterator[None]:
    """Start an S3 server with an empty bucket, and set the variables that name it."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="models")
        client.close()
        yield
    server.stop()


@pytest.fixture(scope="module")
def outputs(bucket: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, LogAndOutput]:
    """The log lines and the output of each command, by the name of its step."""
    return run_sections(SECTIONS, LANES, tmp_path_factory.mktemp("storage"))


@pytest.mark.parametrize("step", COMMANDS, ids=str)
def test_a_command_prints_the_output_in_the_document(
    step: Step, outputs: dict[str, LogAndOutput]
) -> None:
    check_output(step, outputs)


def test_all_commands_are_found() -> None:
    assert len(COMMANDS) == len(re.findall(r"^\$ ", TEXT, re.M))
    assert sorted(SECTIONS) == sorted(sum(LANES, []))


def test_every_flag_in_the_document_exists() -> None:
    assert set(re.findall(r"(?<![\w-])--((?:model|request)_[a-z_]+)\b", TEXT)) <= set(flags.FLAGS)
