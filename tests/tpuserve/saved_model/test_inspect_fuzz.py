"""Every damaged SavedModel is described or refused within a short time."""

import contextlib
import gc
import io
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.tpuserve.saved_models import WORDS, tf_records
from tpuserve.errors import TpuserveError
from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import metagraph, summary, summary_tables, warm_up_file

pytestmark = pytest.mark.slow

LONGEST_SECONDS = 2
GRAPH = (WORDS / "saved_model.pb").read_bytes()
TEXT = text_format.MessageToString(pb.SavedModel.FromString(GRAPH)).encode()
WARM_UP = (WORDS / warm_up_file.PATH).read_bytes()


def flip_bits(content: bytes, at: int, bits: int) -> bytes:
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]


def remove_bytes(content: bytes, at: int, size: int) -> bytes:
    return content[:at] + content[at + size :]


def truncate(content: bytes, at: int, size: int) -> bytes:
    return content[:at]


def insert_bytes(content: bytes, at: int, size: int) -> bytes:
    # The byte 0xff begins a long varint of protobuf, 0x1b an escape sequence of a terminal.
    return content[:at] + (b"\xff\x1b[2J\x00" * size)[:size] + content[at:]


def repeat_bytes(content: bytes, at: int, size: int) -> bytes:
    return content[:at] + content[at : at + size] * 2 + content[at + size :]


Mutation = tuple[Callable[[bytes, int, int], bytes], float, int]

MUTATIONS: st.SearchStrategy[list[Mutation]] = st.lists(
    st.tuples(
        st.sampled_from([flip_bits, remove_bytes, truncate, insert_bytes, repeat_bytes]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 255),
    ),
    min_size=1,
    max_size=4,
)


def mutate_content(content: bytes, mutations: Iterable[Mutation]) -> bytes:
    for mutate, place, amount in mutations:
        if content:
            content = mutate(content, int(place * len(content)), amount)
    return content


# A change of a parsed message. Most changes of the serialised bytes are refused by the parser, and
# so test nothing else.
Change = tuple[float, int, int, str]

FUNCTIONS = [
    function.signature.name
    for metagraph in pb.SavedModel.FromString(GRAPH).meta_graphs
    for function in metagraph.graph_def.library.function
]
OPS = ["TPUPartitionedCall", "BatchFunction", "VarHandleOp", "PartitionedCall"]
CHANGES: st.SearchStrategy[list[Change]] = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 9),
        st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-1, 0, 1, 7, 2**31, 2**62]),
        st.sampled_from(FUNCTIONS + OPS) | st.text(max_size=20),
    ),
    min_size=1,
    max_size=40,
)


def messages_of(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        values = value.values() if is_map(field) else value if field.is_repeated else [value]
        for value in values:
            yield from messages_of(value)


def change(message: Message, field: int, number: int, name: str) -> None:
    """Change a field of a message: set or append a scalar, clear a submessage, or repeat one."""
    fields = [field for field in message.DESCRIPTOR.fields if not is_map(field)]
    if not fields:
        return
    chosen = fields[field % len(fields)]
    values: dict[int, Any] = {
        FieldDescriptor.CPPTYPE_INT32: number % 2**31,
        FieldDescriptor.CPPTYPE_INT64: number,
        FieldDescriptor.CPPTYPE_FLOAT: float(number),
        FieldDescriptor.CPPTYPE_BOOL: bool(number % 2),
        FieldDescriptor.CPPTYPE_STRING: name,
    }
    value = values.get(chosen.cpp_type)
    if chosen.type == FieldDescriptor.TYPE_BYTES:
        value = name.encode() + b"\xff"
    if not chosen.is_repeated:
        message.ClearField(chosen.name)
        if value is not None:
            setattr(message, chosen.name, value)
    elif value is not None:
        getattr(message, chosen.name).append(value)
    else:
        present = getattr(message, chosen.name)
        present.extend(list(present[:1]))


def is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def fuzz_settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        # No deadline in wall time: `inspect` checks the processor time, which does not depend on
        # other processes of the machine.
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return shutil.copytree(WORDS, tmp_path / "1")


def inspect(directory: Path) -> metagraph.SavedModel | None:
    """Describe a SavedModel as `tpuserve inspect` does, as JSON and text, within a time limit.

    Returns:
      The description; None if the SavedModel is refused.
    """
    # A collection of the objects of all tests that ran in this process takes seconds.
    gc.disable()
    try:
        before = time.thread_time()
        model = _inspect(directory)
        duration = time.thread_time() - before
    finally:
        gc.enable()
    assert duration < LONGEST_SECONDS
    return model


def _inspect(directory: Path) -> metagraph.SavedModel | None:
    with contextlib.suppress(TpuserveError):
        model = metagraph.read_saved_model(directory)
        json.dumps(summary.saved_model_to_dict(model), allow_nan=False)
        terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        summary_tables.print_summary(model, Console(file=terminal, width=80))
        terminal.seek(0)
        assert "\x1b" not in terminal.read()
        return model
    return None


@fuzz_settings(500)
@given(MUTATIONS)
def test_a_damaged_graph_is_described_or_refused(
    directory: Path, mutations: list[Mutation]
) -> None:
    (directory / "saved_model.pb").write_bytes(mutate_content(GRAPH, mutations))
    inspect(directory)


@fuzz_settings(150)
@given(CHANGES)
def test_a_graph_of_wrong_values_is_described_or_refused(
    directory: Path, changes: list[Change]
) -> None:
    model = pb.SavedModel.FromString(GRAPH)
    messages = list(messages_of(model))
    for place, field, number, name in changes:
        change(messages[int(place * len(messages))], field, number, name)
    (directory / "saved_model.pb").write_bytes(model.SerializeToString())
    inspect(directory)


@fuzz_settings(50)
@given(MUTATIONS)
def test_a_damaged_text_file_is_described_or_refused(
    directory: Path, mutations: list[Mutation]
) -> None:
    (directory / "saved_model.pb").unlink(missing_ok=True)
    (directory / "saved_model.pbtxt").write_bytes(mutate_content(TEXT, mutations))
    inspect(directory)


@fuzz_settings(100)
@given(MUTATIONS)
def test_a_damaged_warm_up_file_is_a_problem_of_a_described_model(
    directory: Path, mutations: list[Mutation]
) -> None:
    (directory / warm_up_file.PATH).write_bytes(mutate_content(WARM_UP, mutations))
    assert inspect(directory) is not None


@fuzz_settings(100)
@given(MUTATIONS)
def test_damage_within_a_record_is_a_problem_of_a_described_model(
    directory: Path, mutations: list[Mutation]
) -> None:
    (record, _) = warm_up_file.read_warm_up_records(WORDS / warm_up_file.PATH)
    (directory / warm_up_file.PATH).write_bytes(tf_records(mutate_content(record, mutations)))
    assert inspect(directory) is not None
