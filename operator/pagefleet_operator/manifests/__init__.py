"""Kubernetes objects of an InferenceDeployment, built as plain dictionaries."""
