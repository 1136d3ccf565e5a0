"""Kubernetes objects of an InferenceDeployment, built as plain dictionaries."""

from pagefleet_operator.manifests.manifests import build_manifests
from pagefleet_operator.manifests.service import service_url
from pagefleet_operator.manifests.workload import build_workload

__all__ = ["build_manifests", "build_workload", "service_url"]
