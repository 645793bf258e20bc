"""Calls a server with tritonclient, and prints what it returns as JSON.

Arguments: the client (http, grpc, http.aio or grpc.aio) and the address. The program runs in an
environment of its own, see the Makefile: tritonclient needs an older protobuf than the server.
"""

import asyncio
import importlib
import inspect
import json
import queue
import sys
from collections.abc import AsyncIterator
from typing import Any

import ml_dtypes
import numpy as np


async def call(function: Any, *arguments: Any, **options: Any) -> Any:
    """Call a function of a client; await its result if the client is one of asyncio."""
    result = function(*arguments, **options)
    return await result if inspect.isawaitable(result) else result


def to_dict(message: Any) -> Any:
    """Convert a protobuf message to a dictionary; leave the JSON of the HTTP clients as it is."""
    if isinstance(message, (dict, list)):
        return message
    from google.protobuf import json_format

    return json_format.MessageToDict(message, preserving_proto_field_name=True)


async def infer(
    module: Any, client: Any, signature: str, datatype: str, values: Any, **options: Any
) -> Any:
    """Return the output "y" of a signature for the input "x", and the ID of the response."""
    tensor = module.InferInput("x", list(values.shape), datatype)
    if "binary_data" in options:
        is_binary = options.pop("binary_data")
        tensor.set_data_from_numpy(values, binary_data=is_binary)
        outputs = [module.InferRequestedOutput("y", binary_data=is_binary)]
    else:
        tensor.set_data_from_numpy(values)
        outputs = [module.InferRequestedOutput("y")]
    result = await call(
        client.infer,
        "half",
        [tensor],
        outputs=outputs,
        request_id="7",
        parameters={"signature_name": signature},
        **options,
    )
    response = to_dict(result.get_response())
    return response["id"], result.as_numpy("y")


def stream_tensor(module: Any, number: int) -> Any:
    """Return the input of message `number`: one of the messages has a wrong datatype."""
    values = np.array([number], np.float64 if number == 2 else np.float32)
    tensor = module.InferInput("x", [1], "FP64" if number == 2 else "FP32")
    tensor.set_data_from_numpy(values)
    return tensor


def read_streamed(result: Any, error: Any) -> Any:
    """Return the ID, the final parameter and the output of an answer, or the text of its error."""
    if error is not None:
        return str(error)
    response = to_dict(result.get_response())
    final = response["parameters"]["triton_final_response"]["bool_param"]
    return [response["id"], final, result.as_numpy("y").tolist()]


async def stream(module: Any, client: Any) -> list[Any]:
    """Return the answers to four messages of a stream."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.start_stream(lambda result, error: answers.put(read_streamed(result, error)))
    for number in range(4):
        client.async_stream_infer(
            "half",
            [stream_tensor(module, number)],
            request_id=str(number),
            enable_empty_final_response=True,
        )
    found = [answers.get(timeout=60) for _ in range(4)]
    client.stop_stream()
    return found


async def stream_aio(module: Any, client: Any) -> list[Any]:
    """Return what `stream` does, with the client of asyncio."""

    async def messages() -> AsyncIterator[dict[str, Any]]:
        for number in range(4):
            yield {
                "model_name": "half",
                "inputs": [stream_tensor(module, number)],
                "request_id": str(number),
                "enable_empty_final_response": True,
            }

    return [read_streamed(*answer) async for answer in client.stream_infer(messages())]


STREAMS = {"grpc": stream, "grpc.aio": stream_aio}


async def main(kind: str, address: str) -> dict[str, Any]:
    """Return the results of all calls by their names."""
    module = importlib.import_module(f"tritonclient.{kind}")
    client = module.InferenceServerClient(address)
    results: dict[str, Any] = {
        "live": await call(client.is_server_live),
        "ready": await call(client.is_server_ready),
        "model_ready": await call(client.is_model_ready, "half"),
        "other_ready": await call(client.is_model_ready, "other"),
        "server": to_dict(await call(client.get_server_metadata)),
        "metadata": to_dict(await call(client.get_model_metadata, "half")),
        "config": to_dict(await call(client.get_model_config, "half")),
    }
    x = np.array([1, 2, 5], np.float32)
    _, y = await infer(module, client, "serving_default", "FP32", x)
    results["binary"] = y.tolist()
    for name, datatype, values in (
        ("float16", "FP16", np.array([1.5, -2], np.float16)),
        ("bfloat16", "BF16", np.array([1.5, -2], ml_dtypes.bfloat16)),
        ("string", "BYTES", np.array([b"\xff\0", b""], object)),
        ("int64", "INT64", np.array([-(2**63), 2**63 - 1])),
        ("bool", "BOOL", np.array([True, False])),
    ):
        request_id, echoed = await infer(module, client, name, datatype, values)
        results[name] = request_id == "7" and echoed.tolist() == values.tolist()
    if kind.startswith("http"):
        _, y = await infer(module, client, "serving_default", "FP32", x, binary_data=False)
        results["json"] = y.tolist()
        options = {"request_compression_algorithm": "gzip"}
        _, y = await infer(module, client, "serving_default", "FP32", x, **options)
        results["gzip"] = y.tolist()
    for name, shape, datatype in (("wrong_type", [1], "FP64"), ("wrong_shape", [1, 1], "FP32")):
        kind_of = np.float64 if datatype == "FP64" else np.float32
        try:
            await infer(module, client, "serving_default", datatype, np.zeros(shape, kind_of))
        except Exception as error:
            results[name] = str(error)
    if kind.startswith("grpc"):
        results["stream"] = await STREAMS[kind](module, client)
    results["statistics"] = to_dict(await call(client.get_inference_statistics, "half"))
    results["index"] = to_dict(await call(client.get_model_repository_index))
    await call(client.unload_model, "half")
    results["after_unload"] = await call(client.is_model_ready, "half")
    await call(client.load_model, "half")
    results["after_load"] = await call(client.is_model_ready, "half")
    await call(client.close)
    return results


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
