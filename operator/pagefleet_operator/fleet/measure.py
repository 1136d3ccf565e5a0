"""status.measured: what an engine found of the budget that its plan predicted."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pagefleet_operator.fleet.replicas import Replica
from pagefleet_operator.kube.resources import Key
from pagefleet_operator.spec import InferenceDeployment

_REFRESH_SECONDS = 600.0
# They take what the other terms leave, so in a sum they would hide every other error.
_REMAINDERS = ("kv_pool", "reserve")


class LedgerSource(Protocol):
    async def ledger(self, replica: Replica) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class _Reading:
    plan_hash: str
    at: float
    status: Mapping[str, Any]


class LedgerReader:
    """Asks one serving replica of the present plan, again only after ten minutes or a new plan."""

    def __init__(self, engines: LedgerSource, *, now: Callable[[], float]) -> None:
        self._engines = engines
        self._now = now
        self._readings: dict[Key, _Reading] = {}

    async def measured(
        self, infd: InferenceDeployment, plan_hash: str, replicas: Sequence[Replica]
    ) -> Mapping[str, Any] | None:
        """None when no replica of this plan has said anything yet."""
        key = Key(infd.namespace, infd.name)
        known = self._readings.get(key) or _from_status(infd)
        if known is not None and known.plan_hash != plan_hash:
            known = None
        if known is None or self._now() - known.at > _REFRESH_SECONDS:
            known = await self._ask(plan_hash, replicas) or known
        if known is None:
            return None
        self._readings[key] = known
        return known.status

    def forget(self, key: Key) -> None:
        self._readings.pop(key, None)

    async def _ask(self, plan_hash: str, replicas: Sequence[Replica]) -> _Reading | None:
        for replica in replicas:
            if replica.serving and replica.plan_hash == plan_hash:
                ledger = await self._engines.ledger(replica)
                if ledger is not None:
                    now = self._now()
                    return _Reading(plan_hash, now, ledger_to_status(ledger, now=now))
        return None


def ledger_to_status(ledger: Mapping[str, Any], *, now: float) -> dict[str, Any]:
    measured = [term for term in ledger["terms"] if term.get("measuredBytes") is not None]
    compared = [term for term in measured if term["name"] not in _REMAINDERS]
    status: dict[str, Any] = {
        "kvTokens": int(ledger["kv"]["capacityTokens"]),
        "kvBlocks": int(ledger["kv"]["numBlocks"]),
        "peakBytes": int(ledger.get("peakBytes") or 0),
        "terms": [_term(term) for term in measured],
        "at": datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    predicted = sum(int(term["predictedBytes"]) for term in compared)
    if predicted:
        found = sum(int(term["measuredBytes"]) for term in compared)
        status["errorPercent"] = _percent(found - predicted, predicted)
    return status


def _term(term: Mapping[str, Any]) -> dict[str, Any]:
    predicted, found = int(term["predictedBytes"]), int(term["measuredBytes"])
    return {"name": term["name"], "bytes": found, "predictedBytes": predicted}


def _percent(part: int, whole: int) -> str:
    """One decimal, and what rounds to nothing has no sign."""
    return f"{100.0 * part / whole:z.1f}"


def _from_status(infd: InferenceDeployment) -> _Reading | None:
    """What an earlier leader read of the plan that the status shows."""
    measured, plan = infd.status.get("measured"), infd.status.get("plan")
    if not measured or not plan or "at" not in measured:
        return None
    at = datetime.datetime.fromisoformat(measured["at"]).timestamp()
    return _Reading(str(plan["hash"]), at, measured)
