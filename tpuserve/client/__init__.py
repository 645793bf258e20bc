"""Calls models on a server that offers TensorFlow Serving's API or the Open Inference Protocol.

Importing this package takes little time: it imports neither TensorFlow nor a network library. A
client imports httpx or grpc when it is created.

    with Client("http://localhost:8501") as client:
        outputs = client.predict("half", {"x": [1.0, 2.0]})
"""

from tpuserve.client.async_client import AsyncClient
from tpuserve.client.call import VersionStatus
from tpuserve.client.client import Client

__all__ = ["AsyncClient", "Client", "VersionStatus"]
