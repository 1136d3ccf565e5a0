"""The API server: the only module that talks to it, in plain dictionaries over one session.

Retries live here and nowhere else: 429 and 5xx (Retry-After honoured), lost connections, one
re-read of the token after 401, a conflict on a write that names no version, and a paged list
whose token expired (410), which starts again.
"""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from pagefleet_operator.kube.api_errors import (
    Conflict,
    Gone,
    KubeError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    error_from,
)
from pagefleet_operator.kube.credentials import Credentials, CredentialsError
from pagefleet_operator.kube.rate_limit import TokenBucket
from pagefleet_operator.kube.resources import Manifest, Resource, resource_of
from pagefleet_operator.manifests.names import FIELD_MANAGER

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_BACKOFFS = (0.2, 0.5, 1.0, 2.0, 4.0)
_PAGE = 500


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request. `fenced` writes stop when leadership may be lost; the lease itself is not."""

    method: str
    path: str
    params: Mapping[str, str]
    body: object = None
    content_type: str = "application/json"
    fenced: bool = True
    retry_conflict: bool = False

    @property
    def writes(self) -> bool:
        return self.method != "GET"


class Kube:
    """Typed verbs over the API. Every method raises KubeError, writes also LeadershipLost."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        fence: Callable[[], None] = lambda: None,
        rate: float = 100.0,
        burst: float = 200.0,
        timeout: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        observe: Callable[[str, int], None] = lambda method, status: None,
    ) -> None:
        self._credentials = credentials
        self._fence = fence
        self._bucket = TokenBucket(rate=rate, burst=burst, clock=time.monotonic)
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._sleep = sleep
        self._observe = observe
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Kube":
        ssl = self._credentials.ssl_context()
        connector = aiohttp.TCPConnector(ssl=True if ssl is None else ssl, limit=32)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    def set_fence(self, fence: Callable[[], None]) -> None:
        """What every write asks first; set once the elector exists."""
        self._fence = fence

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest | None:
        try:
            return await self._send(ApiRequest("GET", resource.path(namespace, name), {}))
        except NotFound:
            return None

    async def list_all(
        self, resource: Resource, *, namespace: str = "", labels: str = ""
    ) -> list[Manifest]:
        """Every object, page by page; list items carry no kind, so it is put back."""
        while True:
            try:
                items = await self._pages(resource, namespace=namespace, labels=labels)
            except Gone:
                continue
            for item in items:
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
            return items

    async def _pages(self, resource: Resource, *, namespace: str, labels: str) -> list[Manifest]:
        items: list[Manifest] = []
        params = {"limit": str(_PAGE)}
        if labels:
            params["labelSelector"] = labels
        while True:
            page = await self._send(ApiRequest("GET", resource.path(namespace), params))
            items += page.get("items") or []
            token = page["metadata"].get("continue")
            if not token:
                return items
            params = {**params, "continue": token}

    async def create(self, manifest: Manifest, *, fenced: bool = True) -> Manifest:
        path = resource_of(manifest).path(manifest["metadata"].get("namespace", ""))
        params = {"fieldManager": FIELD_MANAGER}
        return await self._send(ApiRequest("POST", path, params, manifest, fenced=fenced))

    async def replace(self, manifest: Manifest, *, fenced: bool = True) -> Manifest:
        """Update from the version that was read; Conflict when someone wrote in between."""
        params = {"fieldManager": FIELD_MANAGER}
        return await self._send(
            ApiRequest("PUT", _path_of(manifest), params, manifest, fenced=fenced)
        )

    async def apply(self, manifest: Manifest, *, subresource: str = "") -> Manifest:
        """Server-side apply; this operator's fields win."""
        params = {"fieldManager": FIELD_MANAGER, "force": "true"}
        path = _path_of(manifest, subresource)
        return await self._send(
            ApiRequest("PATCH", path, params, manifest, content_type=_APPLY, retry_conflict=True)
        )

    async def patch(self, live: Manifest, patch: Mapping[str, Any]) -> Manifest:
        """Merge-patch a few fields of an object that exists."""
        params = {"fieldManager": FIELD_MANAGER}
        return await self._send(
            ApiRequest(
                "PATCH",
                _path_of(live),
                params,
                patch,
                content_type=_MERGE,
                retry_conflict=True,
            )
        )

    async def delete(self, live: Manifest) -> None:
        """Delete exactly this object, not a namesake that replaced it. Gone already is fine."""
        options = {
            "propagationPolicy": "Background",
            "preconditions": {"uid": live["metadata"]["uid"]},
        }
        try:
            await self._send(ApiRequest("DELETE", _path_of(live), {}, options))
        except (NotFound, Conflict):
            return

    async def serves(self, resource: Resource) -> bool:
        """Whether the cluster has this kind now."""
        try:
            listing = await self._send(ApiRequest("GET", resource.root, {}))
        except NotFound:
            return False
        return any(entry["name"] == resource.plural for entry in listing["resources"])

    async def _send(self, request: ApiRequest) -> Manifest:
        for backoff in (*_BACKOFFS, None):
            try:
                return await self._send_once(request)
            except KubeError as error:
                if backoff is None or not _is_retryable(error, request):
                    raise
                await self._sleep(_delay(error, backoff))
        raise AssertionError("the last attempt returns or raises")

    async def _send_once(self, request: ApiRequest) -> Manifest:
        assert self._session is not None, "use `async with Kube(...)`"
        await self._bucket.take()
        if request.writes and request.fenced:
            self._fence()
        try:
            async with self._session.request(
                request.method,
                self._credentials.server + request.path,
                params=request.params,
                data=None if request.body is None else json.dumps(request.body),
                headers=await self._headers(request),
                proxy=self._credentials.proxy,
            ) as response:
                self._observe(request.method, response.status)
                return await _read(response)
        except (aiohttp.ClientError, CredentialsError, TimeoutError, OSError) as error:
            self._observe(request.method, 0)
            raise Unavailable(f"no answer from the API server: {error!r}") from error

    async def _headers(self, request: ApiRequest) -> dict[str, str]:
        headers = {"Accept": "application/json", "Content-Type": request.content_type}
        authorization = await self._credentials.authorization()
        if authorization:
            headers["Authorization"] = authorization
        return headers


def _path_of(manifest: Mapping[str, Any], subresource: str = "") -> str:
    metadata = manifest["metadata"]
    resource = resource_of(manifest)
    return resource.path(metadata.get("namespace", ""), metadata["name"], subresource)


async def _read(response: aiohttp.ClientResponse) -> Manifest:
    text = await response.text()
    try:
        body: object = json.loads(text)
    except ValueError:
        body = text
    if response.status >= 400:
        raise error_from(response.status, body, response.headers)
    if not isinstance(body, dict):
        raise Unavailable(f"the API server answered {response.status} without JSON: {text[:200]}")
    return body


def _is_retryable(error: KubeError, request: ApiRequest) -> bool:
    if isinstance(error, Conflict):
        return request.retry_conflict
    return isinstance(error, TooManyRequests | Unavailable | Unauthorized)


def _delay(error: KubeError, backoff: float) -> float:
    if error.retry_after is not None:
        return error.retry_after
    return backoff * (0.5 + random.random())
