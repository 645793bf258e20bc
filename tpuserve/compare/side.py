"""Sends the requests of a comparison to one of its two sides: a model of a server."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from tpuserve.client import AsyncClient
from tpuserve.client.address import ApiName, parse_url
from tpuserve.client.apis import examples, tensor_proto
from tpuserve.client.arrays import Array
from tpuserve.client.call import ModelReference
from tpuserve.compare.requests import METHODS, Method, Request
from tpuserve.errors import CodedError, InvalidInput, ServerUnreachable, TpuserveError
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature

_SHOWN = 5


@dataclass(frozen=True)
class Side:
    """A model of a server, and how it is called.

    Attributes:
      name: "baseline" or "candidate".
      timeout_s: the time limit of a request, with all of its attempts, in seconds.
    """

    name: Literal["baseline", "candidate"]
    url: str
    model: ModelReference
    api: ApiName = "v1"
    timeout_s: float = 60.0
    api_key: str = ""
    ca_file: str | None = None

    @property
    def protocol(self) -> tuple[bool, ApiName]:
        """Whether the side is called over HTTP, and the name of its API."""
        return parse_url(self.url).is_http, self.api

    @property
    def methods(self) -> Collection[Method]:
        """The methods of requests that the API has."""
        is_http, api = self.protocol
        return METHODS[:1] if api == "v2" else METHODS[:3] if is_http else METHODS

    def __str__(self) -> str:
        version = "" if self.model.version is None else f" version {self.model.version}"
        label = f" label {self.model.label}" if self.model.label else ""
        api = " over v2" if self.api == "v2" else ""
        return f"{self.model.name}{version}{label} at {self.url}{api}"


@dataclass(frozen=True)
class Answer:
    """The answer of a side to a request.

    Attributes:
      outputs: alias → array; empty after an error.
      error: the error of the server, or of the encoding of the request; None after success.
    """

    milliseconds: float
    outputs: Mapping[str, Array]
    error: TpuserveError | None = None


class SideClient:
    """Calls a side, on one event loop."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._is_http, _ = side.protocol
        self._client = AsyncClient(
            side.url,
            api=side.api,
            timeout_s=side.timeout_s,
            api_key=side.api_key,
            ca_file=side.ca_file,
        )

    async def signatures(self) -> Mapping[str, Signature]:
        """Request the signatures of the model: name → signature; with v2 the default signature."""
        model = self._side.model
        try:
            return await self._client.signatures(
                model.name, version=model.version, label=model.label
            )
        except ServerUnreachable as error:
            raise self._unreachable(error) from error
        except TpuserveError as error:
            raise CodedError(f"the {self._side.name}, {self._side}: {error}", error.code) from error

    async def send(self, request: Request) -> Answer:
        """Send a request, and return the answer of the server, which may be an error.

        Raises:
          ServerUnreachable: no server answers.
        """
        started = time.perf_counter()
        outputs: Mapping[str, Array] = {}
        failure = None
        try:
            outputs = await self._run(request)
        except ServerUnreachable as error:
            raise self._unreachable(error) from error
        except TpuserveError as error:
            failure = error
        return Answer((time.perf_counter() - started) * 1000, outputs, failure)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _unreachable(self, error: ServerUnreachable) -> ServerUnreachable:
        return ServerUnreachable(f"the {self._side.name}: {error}")

    async def _run(self, request: Request) -> Mapping[str, Array]:
        model, message = self._side.model, request.message
        # Servers of the Open Inference Protocol other than tpuserve have no names of signatures.
        name = "" if request.signatures[0] == DEFAULT_SIGNATURE else request.signatures[0]
        if request.method == "predict":
            return await self._client.predict(
                model.name,
                tensor_proto.to_arrays(message.inputs),
                signature=name,
                version=model.version,
                label=model.label,
                outputs=message.output_filter,
            )
        if request.method == "multi_inference":
            steps = examples.run_several(model, message.tasks, message.input)
        else:
            steps = examples.run(self._is_http, request.method, model, name, message.input)
        return await self._client.run(steps)


def check_signatures(
    baseline: Mapping[str, Signature],
    candidate: Mapping[str, Signature],
    names: Collection[str],
    are_all_described: bool,
) -> None:
    """Check that signatures have the same inputs and outputs, of the same dtypes, on both sides.

    Args:
      names: the names of the signatures to check. A name that neither side has is not checked.
      are_all_described: whether both sides describe all of their signatures; otherwise only the
        signatures that both describe are checked.

    Raises:
      InvalidInput: a signature differs.
    """
    differences = []
    for name in sorted(names):
        if name in baseline and name in candidate:
            differences += _describe_differences(name, baseline[name], candidate[name])
        elif are_all_described and (name in baseline or name in candidate):
            only = "baseline" if name in baseline else "candidate"
            differences.append(f"only the {only} has {name}")
    if differences:
        more = len(differences) - _SHOWN
        shown = differences[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        raise InvalidInput(
            f"the signatures differ: {'; '.join(shown)}. Name the signatures that are to be "
            f"compared with --signature, or the right models and versions."
        )


def _describe_differences(name: str, baseline: Signature, candidate: Signature) -> list[str]:
    differences = []
    for kind in ("inputs", "outputs"):
        ours, theirs = (
            {alias: spec.dtype for alias, spec in getattr(signature, kind).items()}
            for signature in (baseline, candidate)
        )
        differences += [
            f"{kind[:-1]} {alias} of {name} is {ours.get(alias, 'missing')} in the baseline and "
            f"{theirs.get(alias, 'missing')} in the candidate"
            for alias in sorted({*ours, *theirs})
            if ours.get(alias) != theirs.get(alias)
        ]
    return differences
