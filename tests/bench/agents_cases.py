"""What comes back of what agents do: the 35 cases, each agent with its own undo beside ours."""

from tests.bench.measure import Table, Wishes


def measure(wishes: Wishes) -> Table:
    return Table("Coding agents: what comes back", (), ("not written yet",))
