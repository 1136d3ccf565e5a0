"""Ask a plain-HTTP registry what it has, and give an image in it a second tag."""

import urllib.error
import urllib.request
from dataclasses import dataclass

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
# The registry is on this machine: an HTTP proxy of the user's cannot reach it.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry by its `host:port`."""

    address: str

    def has(self, repository: str, tag: str) -> bool:
        try:
            self._request("HEAD", repository, tag)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return False
        return True

    def alias(self, repository: str, tag: str, *, second: str) -> None:
        """Let `second` name what `tag` names; no layer travels."""
        manifest = self._request("GET", repository, tag)
        self._request("PUT", repository, second, body=manifest)

    def _request(self, method: str, repository: str, tag: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(
            f"http://{self.address}/v2/{repository}/manifests/{tag}",
            data=body,
            method=method,
            headers={"Accept": MANIFEST, "Content-Type": MANIFEST},
        )
        with _opener.open(request, timeout=30) as answer:
            return bytes(answer.read())
