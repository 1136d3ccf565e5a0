"""CEL_RULES and NAME_RULES: every rule that joins fields, each with a pass and a refusal."""

import re

from pagefleet_operator.spec.rules import (
    CelRule,
    NameRule,
    example,
    lengths_rule,
    only_on,
    uri_rule,
)
from pagefleet_operator.spec.spec import InferenceDeploymentSpec as Spec

MAX_NAME_LENGTH = 40
NAME_PATTERN = "[a-z]([-a-z0-9]*[a-z0-9])?"
SCHEMES = ("hf://", "pvc://", "oci://", "file://")


def _batch_holds_all_sequences(spec: Spec) -> bool:
    sizing = spec.sizing_or_default
    seqs, tokens = sizing.max_num_seqs, sizing.max_num_batched_tokens
    return seqs is None or tokens is None or tokens >= seqs


def _prefix_leaves_room(spec: Spec) -> bool:
    workload = spec.workload_or_default
    prefix, longest = workload.shared_prefix_tokens, workload.max_model_len
    return prefix is None or longest is None or prefix < longest


def _rollout_moves(spec: Spec) -> bool:
    strategy = spec.rollout_strategy
    return strategy is None or not (strategy.max_surge == 0 and strategy.max_unavailable == 0)


CEL_RULES: tuple[CelRule, ...] = (
    CelRule(
        name="replicas-or-autoscaling",
        expression="!(has(self.replicas) && has(self.autoscaling))",
        message="replicas and autoscaling exclude each other: remove replicas to let the "
        "autoscaler decide, or remove autoscaling to fix the number",
        field="spec.replicas",
        holds=lambda spec: spec.replicas is None or spec.autoscaling is None,
        accepted=example(autoscaling={"maxReplicas": 2}),
        refused=example(replicas=1, autoscaling={"maxReplicas": 2}),
    ),
    CelRule(
        name="min-not-above-max",
        path=("autoscaling",),
        expression="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",
        message="minReplicas must not be above maxReplicas",
        field="spec.autoscaling.minReplicas",
        holds=lambda spec: (
            spec.autoscaling is None or spec.autoscaling.floor <= spec.autoscaling.max_replicas
        ),
        accepted=example(autoscaling={"minReplicas": 2, "maxReplicas": 2}),
        refused=example(autoscaling={"minReplicas": 3, "maxReplicas": 2}),
    ),
    CelRule(
        name="rollout-moves",
        path=("rolloutStrategy",),
        expression="!(has(self.maxSurge) && self.maxSurge == 0 && has(self.maxUnavailable) "
        "&& self.maxUnavailable == 0)",
        message="maxSurge and maxUnavailable are both 0, so no pod could ever be replaced: set one "
        "to 1 or more",
        field="spec.rolloutStrategy",
        holds=_rollout_moves,
        accepted=example(rolloutStrategy={"maxSurge": 0, "maxUnavailable": 1}),
        refused=example(rolloutStrategy={"maxSurge": 0, "maxUnavailable": 0}),
    ),
    CelRule(
        name="uri-scheme",
        path=("model",),
        expression="['hf://', 'pvc://', 'oci://', 'file://'].exists(s, self.uri.startsWith(s))",
        message="uri must start with hf://, pvc:// or oci://",
        field="spec.model.uri",
        holds=lambda spec: spec.model.uri.startswith(SCHEMES),
        accepted=example("hf://example/model"),
        refused=example("s3://bucket/model"),
    ),
    CelRule(
        name="uri-reachable-from-pods",
        path=("model",),
        expression="!self.uri.startsWith('file://')",
        message="file:// works with `pagefleet run` only; in a cluster use hf://, pvc:// or oci://",
        field="spec.model.uri",
        holds=lambda spec: not spec.model.uri.startswith("file://"),
        accepted=example("pvc://models"),
        refused=example("file:///models/smollm2"),
        cluster_only=True,
    ),
    uri_rule(
        name="uri-hub",
        scheme="hf://",
        pattern="hf://[A-Za-z0-9._-]+/[A-Za-z0-9._-]+",
        message="a hub model is hf://organization/name; a branch, tag or commit goes into revision",
        accepted="hf://meta-llama/Llama-3.1-8B-Instruct",
        refused="hf://llama",
    ),
    uri_rule(
        name="uri-claim",
        scheme="pvc://",
        pattern="pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*/?",
        message="a claim is pvc://name or pvc://name/path/in/it, without '..'",
        accepted="pvc://models/llama/8b",
        refused="pvc://models/../secrets",
    ),
    uri_rule(
        name="uri-image",
        scheme="oci://",
        pattern="oci://[A-Za-z0-9][A-Za-z0-9._:/@-]*",
        message="an image is oci://registry/name:tag or oci://registry/name@sha256:digest",
        accepted="oci://registry.example:5000/models/smollm2@sha256:" + "0" * 64,
        refused="oci:///smollm2",
    ),
    CelRule(
        name="revision-of-hub",
        path=("model",),
        expression="!has(self.revision) || self.uri.startsWith('hf://')",
        message="revision belongs to hf:// models; an image has its tag or digest in uri",
        field="spec.model.revision",
        holds=lambda spec: spec.model.revision is None or spec.model.uri.startswith("hf://"),
        accepted={"model": {"uri": "hf://example/model", "revision": "v1.0"}},
        refused={"model": {"uri": "oci://example/model:1", "revision": "v1.0"}},
    ),
    CelRule(
        name="secret-of-hub",
        path=("model",),
        expression="!has(self.secretName) || self.uri.startsWith('hf://')",
        message="secretName is the access token of hf:// models; images are pulled with the "
        "chart's images.pullSecrets",
        field="spec.model.secretName",
        holds=lambda spec: spec.model.secret_name is None or spec.model.uri.startswith("hf://"),
        accepted={"model": {"uri": "hf://example/model", "secretName": "hub-token"}},
        refused={"model": {"uri": "pvc://models", "secretName": "hub-token"}},
    ),
    CelRule(
        name="batch-holds-all-sequences",
        path=("sizing",),
        expression="!has(self.maxNumSeqs) || !has(self.maxNumBatchedTokens) || "
        "self.maxNumBatchedTokens >= self.maxNumSeqs",
        message="maxNumBatchedTokens must be at least maxNumSeqs, one token for each request",
        field="spec.sizing.maxNumBatchedTokens",
        holds=_batch_holds_all_sequences,
        accepted=example(sizing={"maxNumSeqs": 64, "maxNumBatchedTokens": 64}),
        refused=example(sizing={"maxNumSeqs": 64, "maxNumBatchedTokens": 63}),
    ),
    CelRule(
        name="prefix-within-context",
        path=("workload",),
        expression="!has(self.sharedPrefixTokens) || !has(self.maxModelLen) || "
        "self.sharedPrefixTokens < self.maxModelLen",
        message="sharedPrefixTokens must be below maxModelLen, which counts the prefix too",
        field="spec.workload.sharedPrefixTokens",
        holds=_prefix_leaves_room,
        accepted=example(workload={"sharedPrefixTokens": 511, "maxModelLen": 512}),
        refused=example(workload={"sharedPrefixTokens": 512, "maxModelLen": 512}),
    ),
    lengths_rule("inputTokens"),
    lengths_rule("outputTokens"),
    only_on("CPU", field="hardware.cpu", values={"hardware": {"cpu": "2"}}),
    only_on("CPU", field="hardware.memory", values={"hardware": {"memory": "4Gi"}}),
    only_on("GPU", field="hardware.products", values={"hardware": {"products": ["NVIDIA-L4"]}}),
    only_on(
        "GPU",
        field="sizing.gpuMemoryUtilization",
        values={"sizing": {"gpuMemoryUtilization": "0.90"}},
    ),
    only_on("GPU", field="sizing.parallelism", values={"sizing": {"parallelism": {"tensor": 2}}}),
    only_on("GPU", field="sizing.limits.maxGPUs", values={"sizing": {"limits": {"maxGPUs": 2}}}),
)

NAME_RULES: tuple[NameRule, ...] = (
    NameRule(
        name="name-length",
        expression=f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
        message=f"metadata.name must have at most {MAX_NAME_LENGTH} characters, so that the names "
        "derived from it stay valid",
        holds=lambda name: len(name) <= MAX_NAME_LENGTH,
        accepted="a" * MAX_NAME_LENGTH,
        refused="a" * (MAX_NAME_LENGTH + 1),
    ),
    NameRule(
        name="name-form",
        expression=f"self.metadata.name.matches('^{NAME_PATTERN}$')",
        message="metadata.name becomes a Service: lowercase letters, digits and '-', with a letter "
        "first and no '.'",
        holds=lambda name: re.fullmatch(NAME_PATTERN, name) is not None,
        accepted="llama-3-8b",
        refused="llama-3.1-8b",
    ),
)
