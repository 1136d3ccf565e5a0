"""A model hub on this machine: info, resolve with redirects, ranges, refusals and breaks."""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"

_INFO = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(/revision/(?P<revision>[^/]+))?")
_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")
_BLOB = re.compile(r"/blobs/(?P<repo>[^/]+/[^/]+)/(?P<name>.+)")


@dataclass(slots=True)
class HubBehaviour:
    """What the hub does beyond serving files; tests change it while it runs."""

    token: str | None = None  # asked for on every request
    gated: set[str] = field(default_factory=set)
    break_after_bytes: int | None = None  # cut the connection of large files here ...
    num_breaks: int = 0  # ... this many times
    log: list[tuple[str, str, str]] = field(default_factory=list)  # (method, path, range)


class HubServer:
    """Serves model folders as `org/name`; use it as a context manager."""

    def __init__(
        self,
        models: Mapping[str, Path],
        behaviour: HubBehaviour | None = None,
        *,
        address: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self.behaviour = behaviour or HubBehaviour()
        attributes = {"models": dict(models), "behaviour": self.behaviour}
        self._server = ThreadingHTTPServer(address, type("Handler", (_Handler,), attributes))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def endpoint(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    models: Mapping[str, Path] = {}
    behaviour = HubBehaviour()
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._route()

    def do_GET(self) -> None:
        self._route()

    def _route(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.behaviour.log.append((self.command, path, self.headers.get("Range", "")))
        if found := _BLOB.fullmatch(path):
            self._send_file(self.models[found["repo"]] / found["name"])
        elif found := _INFO.fullmatch(path) or _RESOLVE.fullmatch(path):
            if self._is_allowed(found):
                self._answer(found)
        else:
            self._refuse(404, "EntryNotFound", "no such page")

    def _is_allowed(self, found: re.Match[str]) -> bool:
        token = self.behaviour.token
        if token is not None and self.headers.get("Authorization") != f"Bearer {token}":
            self._refuse(401, "", "Invalid credentials")
        elif found["repo"] in self.behaviour.gated:
            self._refuse(403, "GatedRepo", "Access to this model is restricted")
        elif found["repo"] not in self.models:
            self._refuse(404, "RepoNotFound", "Repository not found")
        elif found["revision"] not in (None, "main", COMMIT):
            self._refuse(404, "RevisionNotFound", "Invalid rev id")
        else:
            return True
        return False

    def _answer(self, found: re.Match[str]) -> None:
        folder = self.models[found["repo"]]
        if "name" not in found.groupdict():
            self._send_info(found["repo"], folder)
        elif not (folder / found["name"]).is_file():
            self._refuse(404, "EntryNotFound", "Entry not found")
        elif found["name"].endswith(".safetensors"):
            self._redirect(found["repo"], folder / found["name"])
        else:
            self._send_file(folder / found["name"])

    def _send_info(self, repo: str, folder: Path) -> None:
        names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
        siblings = [{"rfilename": name} for name in names]
        self._send(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode(), {})

    def _redirect(self, repo: str, file: Path) -> None:
        """Large files live elsewhere; size and etag of the target come with the redirect."""
        headers = {
            "Location": f"/blobs/{repo}/{file.name}",
            "X-Linked-Size": str(file.stat().st_size),
            "X-Linked-Etag": f'"{hashlib.sha256(file.read_bytes()).hexdigest()}"',
        }
        self._send(302, b"", headers)

    def _send_file(self, file: Path) -> None:
        data = file.read_bytes()
        headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._send(200, data, headers)
            return
        start = int(wanted[1])
        end = min(int(wanted[2] or len(data) - 1), len(data) - 1)
        headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
        self._send(206, data[start : end + 1], headers)

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
        self._send(status, json.dumps({"error": message}).encode(), headers)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self._write(body)

    def _write(self, body: bytes) -> None:
        behaviour = self.behaviour
        limit = behaviour.break_after_bytes
        if limit is None or behaviour.num_breaks == 0 or len(body) <= limit:
            self.wfile.write(body)
            return
        behaviour.num_breaks -= 1
        self.wfile.write(body[:limit])
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet: `behaviour.log` has what was asked for."""
