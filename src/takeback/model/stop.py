"""A stop: from then on an agent, a run or everything does nothing more, until a person lifts it."""

from typing import NamedTuple


class Stop(NamedTuple):
    agent: str = ""  # of this agent
    run: str = ""  # of this run; with neither: of everything
    by: str = ""
    why: str = ""
    at: int = 0  # microseconds since 1970
    seq: int = 0  # of its record

    def concerns(self, agent: str, run: str) -> bool:
        return (self.agent == agent if self.agent else True) and (self.run == run if self.run else True)
