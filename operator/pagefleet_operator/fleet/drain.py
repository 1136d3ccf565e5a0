"""Taking replicas out of service without failing a request.

Pure: which replicas leave, which drains are called back, which may be stopped now. Victims in
order: those that do not serve, those already draining, those with the fewest tokens in their KV
cache, the newest. The replica is stopped when it runs nothing any more or its time is over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pagefleet_operator.fleet.replicas import Replica


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Unfinished requests of one engine and the KV tokens they hold."""

    requests: int
    kv_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class DrainChoice:
    """`victims` leave; `called_back` were draining and are wanted again."""

    victims: tuple[Replica, ...] = ()
    called_back: tuple[Replica, ...] = ()


def choose_victims(
    replicas: Sequence[Replica], *, target: int, size: int, load: Mapping[str, EngineLoad]
) -> DrainChoice:
    """Leave `target` replicas of those that exist; the workload is set to `size` now.

    More replicas than `size` means that the last ones stopped have not disappeared yet.
    """
    ranked = sorted(_newest_first(replicas), key=lambda replica: _rank(replica, load))
    victims = tuple(ranked[: max(0, len(replicas) - target)])
    leaving = len(replicas) > size
    called_back = tuple(
        replica
        for replica in replicas
        if replica.draining and replica not in victims and not (replica.released and leaving)
    )
    return DrainChoice(victims, called_back)


def size_after(stopped: int, *, replicas: int, target: int, size: int) -> int:
    """The size to set once `stopped` of the existing replicas may go; it only ever falls here."""
    return min(size, max(target, replicas - stopped))


def may_stop(
    replica: Replica, load: EngineLoad | None, *, timeout_seconds: float, now: float
) -> bool:
    """Never served, runs nothing, or has had its time. `load` is None when it does not answer."""
    if replica.draining_since is None:
        return not replica.ready
    if now - replica.draining_since >= timeout_seconds:
        return True
    return load is not None and load.requests == 0


def _newest_first(replicas: Sequence[Replica]) -> list[Replica]:
    return sorted(replicas, key=lambda replica: replica.created, reverse=True)


def _rank(replica: Replica, load: Mapping[str, EngineLoad]) -> tuple[float, ...]:
    """Smallest leaves first; a group's index outweighs everything else."""
    engine = load.get(replica.name, EngineLoad(requests=0))
    return (
        0 if replica.ordinal is None else -replica.ordinal,
        _readiness_rank(replica),
        engine.kv_tokens,
        engine.requests,
    )


def _readiness_rank(replica: Replica) -> int:
    if replica.released:
        return 0
    if replica.draining:
        return 2
    return 3 if replica.ready else 1
