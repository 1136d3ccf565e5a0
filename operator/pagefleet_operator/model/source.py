"""Where a model lies: spec.model.uri taken apart."""

from dataclasses import dataclass

from pagefleet_operator.errors import SpecError


@dataclass(frozen=True, slots=True)
class HubSource:
    """hf://organization/name"""

    repo: str


@dataclass(frozen=True, slots=True)
class ClaimSource:
    """pvc://claim/path; `path` is "" for the root of the volume."""

    claim: str
    path: str


@dataclass(frozen=True, slots=True)
class ImageSource:
    """oci://reference of an image that carries the folder in /model"""

    reference: str

    @property
    def revision(self) -> str:
        """The digest, or the tag, or latest."""
        if "@" in self.reference:
            return self.reference.rpartition("@")[2]
        name = self.reference.rpartition("/")[2]
        return name.partition(":")[2] or "latest"


@dataclass(frozen=True, slots=True)
class FolderSource:
    """file:///path, for `pagefleet run`"""

    path: str


ModelSource = HubSource | ClaimSource | ImageSource | FolderSource


def parse_model_uri(uri: str) -> ModelSource:
    scheme, separator, rest = uri.partition("://")
    if separator and rest:
        if scheme == "hf" and rest.count("/") == 1:
            return HubSource(rest)
        if scheme == "pvc":
            claim, _, path = rest.partition("/")
            return ClaimSource(claim, path.strip("/"))
        if scheme == "oci":
            return ImageSource(rest)
        if scheme == "file" and rest.startswith("/"):
            return FolderSource(rest)
    raise SpecError(
        "spec.model.uri",
        uri,
        "is none of hf://org/name, pvc://claim/path, oci://image, file:///folder",
    )
