"""A model hub's file API on this machine, serving virtual models to the inspection pods."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from e2e.support.virtual_model import COMMIT, VirtualModel

WEIGHTS = "model.safetensors"
RESOLVE = re.compile(r"^/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>[^?]+)")
INFO = re.compile(r"^/api/models/(?P<repo>[^/]+/[^/?]+)(/revision/[^/?]+)?(\?.*)?$")
TREE = re.compile(r"^/api/models/(?P<repo>[^/]+/[^/?]+)/tree/[^/?]+(\?.*)?$")


@contextmanager
def serving(models: Mapping[str, VirtualModel], *, host: str, port: int) -> Iterator[str]:
    """Serve the models as `org/name` until the block ends; yields the endpoint."""
    handler = type("Handler", (_Hub,), {"models": dict(models)})
    server = ThreadingHTTPServer((host, port), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Hub(BaseHTTPRequestHandler):
    models: Mapping[str, VirtualModel] = {}
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        for pattern, act in ((RESOLVE, self._file), (TREE, self._tree), (INFO, self._info)):
            found = pattern.match(unquote(self.path))
            if found and found["repo"] in self.models:
                act(self.models[found["repo"]], found, with_body)
                return
        self._missing("RepoNotFound", "Repository not found")

    def _info(self, model: VirtualModel, _: re.Match[str], with_body: bool) -> None:
        names = [{"rfilename": name} for name in [*model.files, WEIGHTS]]
        self._send(200, json.dumps({"sha": COMMIT, "siblings": names}).encode(), with_body)

    def _tree(self, model: VirtualModel, _: re.Match[str], with_body: bool) -> None:
        sizes = {name: len(data) for name, data in model.files.items()}
        sizes[WEIGHTS] = model.weights_size
        items = [{"type": "file", "path": n, "size": s, "oid": COMMIT} for n, s in sizes.items()]
        self._send(200, json.dumps(items).encode(), with_body)

    def _file(self, model: VirtualModel, found: re.Match[str], with_body: bool) -> None:
        path = found["path"]
        if path == WEIGHTS:
            self._weights(model, with_body)
        elif path in model.files:
            self._send(200, model.files[path], with_body)
        else:
            self._missing("EntryNotFound", "Entry not found")

    def _weights(self, model: VirtualModel, with_body: bool) -> None:
        size = model.weights_size
        wanted = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not wanted:
            self._head(200, size)
            return
        start = int(wanted[1])
        end = min(int(wanted[2] or size - 1), size - 1)
        part = model.header[start : end + 1]
        body = part + bytes(max(0, min(end - start + 1, 1 << 20) - len(part)))
        last = start + len(body) - 1
        self._send(206, body, with_body, {"Content-Range": f"bytes {start}-{last}/{size}"})

    def _missing(self, code: str, message: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self._send(404, json.dumps({"error": message}).encode(), True, headers)

    def _send(
        self, status: int, body: bytes, with_body: bool, headers: Mapping[str, str] | None = None
    ) -> None:
        self._head(status, len(body), headers or {})
        if with_body:
            self.wfile.write(body)

    def _head(self, status: int, length: int, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", f'"{COMMIT}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet: the pods' own logs say what they asked for."""
