"""What the daemon records of a conversation with a coding agent, made with the public API."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import takeback
from takeback import Effect, Run, Takeback
from takeback.model.change import Facts
from takeback.runs.prompts import mark_prompt, session_name


class Conversation:
    """It is left open between the steps, as the daemon leaves it, so that commands meet it unfinished."""

    def __init__(
        self, store: Path, project: Path, id: str = "5f2c9d71-aa", host: str = "claude-code"
    ) -> None:
        self.host, self.id, self.project, self._store = host, id, project, store

    def __enter__(self) -> "Conversation":
        self.tb: Takeback = takeback.open(self._store)
        self.run: Run = self.tb.session(
            session_name(self.host, self.id), agent=self.host, project=self.project
        )
        return self

    def __exit__(self, *error: object) -> None:
        self.run.leave()
        self.tb.close()

    def says(self, text: str, turn: str = "") -> None:
        with self:
            mark_prompt(self.run, text, turn)

    def edits(self, files: Mapping[str, str]) -> Effect:
        with self:
            effect = self.run.write_all({self.project / name: text for name, text in files.items()})
        assert effect
        return effect

    def sees_others(self, does: Callable[[], object]) -> Effect:
        """What changed between two calls, by someone else: recorded in the run, and not counted to the agent."""
        with self:
            watch = self.run.watch(self.project, summary="between calls")
            with watch:
                does()
                proposal = watch._proposal  # pyright: ignore[reportPrivateUsage]
                assert proposal
                change = proposal.change._replace(facts=Facts(others=True))
                watch._proposal = proposal._replace(change=change)  # pyright: ignore[reportPrivateUsage]
        assert watch.effect and watch.effect.change.facts.others
        return watch.effect

    def runs(self, summary: str, does: Callable[[], object], **about: Any) -> Effect:
        """A call of its shell, watched."""
        with self:
            watch = self.run.watch(self.project, summary=summary, about=about)
            with watch:
                does()
        assert watch.effect
        return watch.effect

    def shell(self, words: str, **about: Any) -> Effect:
        def does() -> None:
            assert os.spawnvp(os.P_WAIT, "sh", ["sh", "-c", f"cd '{self.project}' && {words}"]) == 0

        return self.runs(f"Bash: {words}", does, **about)
