"""The main program of a parse process, a child of the server that parses large request bodies.

A parser written in C holds Python's GIL until it has parsed a whole body.
"""

import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from server.codec import examples, json_parser, requests
from server.codec.infer_request import decode_infer_request
from server.parsing import parse_process
from server.parsing.parse_process import Buffer, Header
from server.servables.servable import Array
from tpuserve.errors import TpuserveError
from tpuserve.saved_model.signature import Signature, TensorSpec

# The amount by which a parse process raises its nice value, so that it gets less processor time
# than the server.
_NICENESS = 5


def serve(connection: socket.socket) -> None:
    """Answer the requests that `ParseProcess` sends, until the server closes the connection."""
    document: Any = None
    while True:
        header, buffers = parse_process.receive_message(connection)
        operation = header["operation"]
        try:
            if operation == "parse":
                document, answer, results = _parse_document(bytes(buffers.pop()))
            elif operation == "infer":
                answer, results = _decode_infer_request(bytes(buffers.pop()))
            elif operation == "inputs":
                answer, results = _decode_inputs(document, header["dtypes"])
            elif operation == "examples":
                context, separate = examples.decode_separately(document)
                answer, results = {}, [context, *parse_process.pack_strings(separate)]
                del separate
            else:
                document, answer, results = None, {}, []
        except TpuserveError as error:
            answer = {"error": type(error).__name__, "message": str(error), "code": error.code.name}
            results = []
        except MemoryError:
            answer = {
                "error": "RequestTooLarge",
                "message": "out of memory. Send less at a time.",
                "code": "RESOURCE_EXHAUSTED",
            }
            document, results = None, []
        parse_process.send_message(connection, answer, results)
        del results, answer, header, buffers


def _parse_document(body: bytes) -> tuple[Any, Header, list[Buffer]]:
    document = json_parser.parse_json(body)
    name = requests.get_signature_name(document)
    answer = {"signature_name": name, "is_row_format": requests.is_row_format(document)}
    return document, answer, []


def _decode_infer_request(body: bytes) -> tuple[Header, list[Buffer]]:
    request = decode_infer_request(json_parser.parse_json(body))
    arrays, results = _pack_arrays(request.arrays)
    return {"request": request._replace(arrays={})._asdict(), "arrays": arrays}, results


def _decode_inputs(document: Any, dtypes: dict[str, str]) -> tuple[Header, list[Buffer]]:
    specs = {alias: TensorSpec(alias, dtype, None) for alias, dtype in dtypes.items()}
    arrays, results = _pack_arrays(requests.decode_inputs(document, Signature(specs, {})))
    return {"arrays": arrays}, results


def _pack_arrays(arrays: Mapping[str, Array]) -> tuple[Header, list[Buffer]]:
    descriptions: Header = {}
    results: list[Buffer] = []
    for alias, array in arrays.items():
        descriptions[alias], buffers = parse_process.pack_array(array)
        results += buffers
    return descriptions, results


def main() -> None:
    """Answer requests on the socket whose file descriptor is the only command-line argument."""
    # Ignore SIGINT: on Ctrl-C the terminal sends it to the server too, which then closes the
    # connection and so ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    # Disable the garbage collector, which would repeatedly visit all parsed values and find nothing
    # to free, because the values have no reference cycles.
    gc.disable()
    with (
        socket.socket(fileno=int(sys.argv[1])) as connection,
        contextlib.suppress(EOFError, OSError),
    ):
        serve(connection)


if __name__ == "__main__":
    main()
