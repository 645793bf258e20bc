"""Calls a server with KServe's Python client, and prints what it returns as JSON.

Arguments: the base URL of REST, and the address of gRPC. The program runs in an environment of its
own, see the Makefile.
"""

import asyncio
import json
import sys
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig


def build_request(is_binary: bool) -> InferRequest:
    """Return a request for y = x / 2 + 2 of 1, 2 and 5."""
    tensor = InferInput("x", [3], "FP32")
    tensor.set_data_from_numpy(np.array([1, 2, 5], np.float32), binary_data=is_binary)
    parameters = {"binary_data_output": True} if is_binary else None
    return InferRequest("half", [tensor], request_id="7", parameters=parameters)


async def main(url: str, address: str) -> dict[str, Any]:
    """Return the results of all calls by their names."""
    rest = InferenceRESTClient(RESTConfig(protocol="v2"))
    grpc = InferenceGRPCClient(url=address)
    answers = {
        "json": await rest.infer(url, build_request(False), model_name="half"),
        "binary": await rest.infer(url, build_request(True), model_name="half"),
        "grpc": await grpc.infer(build_request(False)),
    }
    results = {
        "live": [await rest.is_server_live(url), await grpc.is_server_live()],
        "ready": [await rest.is_server_ready(url), await grpc.is_server_ready()],
        "model_ready": [await rest.is_model_ready(url, "half"), await grpc.is_model_ready("half")],
        **{name: answer.outputs[0].as_numpy().tolist() for name, answer in answers.items()},
    }
    await grpc.close()
    await rest.close()
    return results


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
