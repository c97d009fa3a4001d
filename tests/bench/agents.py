"""Coding agents, both tables. Each is a bench of its own too: `agents_costs`, `agents_cases`."""

from tests.bench import agents_cases, agents_costs
from tests.bench.measure import Table, Wishes


def measure(wishes: Wishes) -> tuple[Table, ...]:
    return agents_costs.measure(wishes), agents_cases.measure(wishes)
