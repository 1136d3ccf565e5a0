"""Inspect a model on a Hugging Face hub, by range requests: nothing but headers is downloaded."""

import asyncio
from dataclasses import dataclass

import aiohttp

from pagefleet_operator.errors import InspectionError
from pagefleet_operator.model.folder import INDEX
from pagefleet_operator.model.inspected import InspectedModel, read_model
from pagefleet_operator.model.safetensors_header import (
    LENGTH_BYTES,
    FileSummary,
    header_length,
    parse_header,
    shard_names,
)

PUBLIC_ENDPOINT = "https://huggingface.co"
COMMIT_HEADER = "X-Repo-Commit"
FIRST_READ_BYTES = 1 << 16
MOST_FILE_BYTES = 64 << 20  # of config.json and the index
_TIMEOUT = aiohttp.ClientTimeout(total=600, sock_connect=20, sock_read=60)
_PARALLEL = 8
_ATTEMPTS = 3
RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """`token` "" for public models."""

    repo: str
    revision: str = "main"
    endpoint: str = PUBLIC_ENDPOINT
    token: str = ""

    def url(self, name: str) -> str:
        return f"{self.endpoint.rstrip('/')}/{self.repo}/resolve/{self.revision}/{name}"


@dataclass(frozen=True, slots=True)
class _Part:
    """The beginning of a file; `commit` is the revision the hub resolved."""

    data: bytes
    commit: str


async def inspect_hub(model: HubModel) -> InspectedModel:
    # aiohttp drops Authorization when a redirect leads to another host.
    headers = {"Authorization": f"Bearer {model.token}"} if model.token else {}
    connector = aiohttp.TCPConnector(limit=_PARALLEL)
    async with aiohttp.ClientSession(
        headers=headers, timeout=_TIMEOUT, connector=connector, trust_env=True
    ) as session:
        config = await _get(session, model, "config.json")
        names = await _weight_files(session, model)
        files = await asyncio.gather(*(_header(session, model, name) for name in names))
    return read_model(config.data, files, revision=config.commit or model.revision)


async def _weight_files(session: aiohttp.ClientSession, model: HubModel) -> list[str]:
    try:
        return shard_names((await _get(session, model, INDEX)).data)
    except InspectionError as error:
        if error.reason != "ModelNotFound":
            raise
    return ["model.safetensors"]


async def _header(session: aiohttp.ClientSession, model: HubModel, name: str) -> FileSummary:
    try:
        start = (await _get(session, model, name, first=FIRST_READ_BYTES)).data
        length = header_length(name, start)
        if len(start) < LENGTH_BYTES + length:
            start = (await _get(session, model, name, first=LENGTH_BYTES + length)).data
    except InspectionError as error:
        if error.reason != "ModelNotFound":
            raise
        message = f"{model.repo} has no {name} at {model.revision}"
        raise InspectionError("NoSafetensors", message) from error
    return parse_header(name, start[LENGTH_BYTES : LENGTH_BYTES + length])


async def _get(
    session: aiohttp.ClientSession, model: HubModel, name: str, *, first: int = MOST_FILE_BYTES
) -> _Part:
    """The first bytes of a file; a broken connection is tried again."""
    problem = ""
    for attempt in range(_ATTEMPTS):
        try:
            return await _get_once(session, model, name, first=first)
        except (aiohttp.ClientError, TimeoutError) as error:
            problem = f"{type(error).__name__}: {error}"
            await asyncio.sleep(attempt * RETRY_SECONDS)
    message = f"{model.url(name)}: {problem}, in {_ATTEMPTS} attempts"
    raise InspectionError("HubUnreachable", message)


async def _get_once(
    session: aiohttp.ClientSession, model: HubModel, name: str, *, first: int
) -> _Part:
    headers = {"Range": f"bytes=0-{first - 1}"} if first < MOST_FILE_BYTES else {}
    async with session.get(model.url(name), headers=headers) as response:
        _check(response, model, name)
        data = bytearray()
        # A server that ignores the range is left as soon as there is enough.
        async for chunk in response.content.iter_chunked(FIRST_READ_BYTES):
            data += chunk
            if len(data) >= first:
                break
        return _Part(bytes(data[:first]), _commit(response))


def _commit(response: aiohttp.ClientResponse) -> str:
    for answer in (*response.history, response):
        if answer.headers.get(COMMIT_HEADER):
            return answer.headers[COMMIT_HEADER]
    return ""


def _check(response: aiohttp.ClientResponse, model: HubModel, name: str) -> None:
    status = response.status
    if status < 400:
        return
    detail = response.headers.get("X-Error-Message", response.reason or "")
    what = f"{model.repo} at {model.revision}, {name}: the hub answers {status} {detail}"
    if status in (401, 403):
        hint = "put a token that may read it under HF_TOKEN into a Secret and name it in secretName"
        raise InspectionError("ModelAccessDenied", f"{what}; {hint}")
    if status == 404:
        raise InspectionError("ModelNotFound", f"{what}; check the name and the revision")
    if status == 429 or status >= 500:
        raise aiohttp.ClientError(what)
    raise InspectionError("HubRefused", what)
