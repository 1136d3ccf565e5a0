"""The project's container images: built from the Dockerfile, pushed to the cluster's registry."""

from e2e.images.pipeline import build_all, build_and_push

__all__ = ["build_all", "build_and_push"]
