"""A stop: from then on an agent, a run or everything does nothing more, until a person lifts it."""

from typing import NamedTuple


class Stop(NamedTuple):
    agent: str = ""  # of this agent
    run: str = ""  # of this run; with neither: of everything
    by: str = ""
    why: str = ""
    at: int = 0  # microseconds since 1970
    seq: int = 0  # of its record
    conversation: str = (
        ""  # with a run of a coding agent: the name that all runs of its conversation have in common
    )

    def concerns(self, agent: str, run: str, conversation: str = "") -> bool:
        if self.run:
            return run == self.run or (bool(conversation) and conversation == self.conversation)
        return not self.agent or agent == self.agent
