"""Few cases in which every two choices meet: a covering array, built greedily."""

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

Case = dict[str, Any]


def pairwise_cases(factors: Mapping[str, Sequence[Any]], *, tries: int = 40) -> list[Case]:
    """Deterministic; every pair of choices of two factors occurs in some case."""
    chance = random.Random(0)
    missing = {
        ((one, i), (other, j))
        for one, other in combinations(factors, 2)
        for i in range(len(factors[one]))
        for j in range(len(factors[other]))
    }
    cases = []
    while missing:
        wanted = dict(min(missing))
        drawn = [
            {name: wanted.get(name, chance.randrange(len(factors[name]))) for name in factors}
            for _ in range(tries)
        ]
        best = max(drawn, key=lambda each: len(missing & _pairs(each)))
        missing -= _pairs(best)
        cases.append({name: factors[name][index] for name, index in best.items()})
    return cases


def _pairs(chosen: Mapping[str, int]) -> set[tuple[tuple[str, int], tuple[str, int]]]:
    return set(combinations(chosen.items(), 2))
