"""A stop: from then on an agent, a run or everything does nothing more, until a person lifts it."""

from typing import NamedTuple


class Stop(NamedTuple):
    agent: str = ""  # of this agent
    run: str = ""  # of this run; with neither: of everything
    by: str = ""
    why: str = ""
    at: int = 0  # microseconds since 1970
    seq: int = 0  # of its record
    # With a run of a coding agent: the name that all runs of its conversation have in common.
    conversation: str = ""
    remark: str = ""  # what was typed with --by

    @property
    def who(self) -> str:
        """For a reader: the account, and the name that was typed."""
        return f"{self.by} ({self.remark})" if self.remark not in ("", self.by) else self.by

    def concerns(self, agent: str, run: str, conversation: str = "") -> bool:
        if self.run:
            return run == self.run or (bool(conversation) and conversation == self.conversation)
        return not self.agent or agent == self.agent
