"""The model of `hook test`, with a script of several prompts; a turn is the calls that it makes at once.

The model finds the last of its prompts in a conversation, counts the results since, and says the next turn; after the
last one it says "All done.". A subagent's prompt is a prompt like any other: its conversation begins with it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from takeback.frontends.agents import model
from takeback.frontends.agents.launch import ModelCall
from takeback.frontends.agents.model import Body, Message, Said, offers_tools

Turn = Sequence[tuple[str, Any]]  # name and input of each call, in the agent's words


class Request(NamedTuple):
    """A turn that an agent asked for."""

    prompt: str  # which of the script's; "" for another conversation (a title, a summary)
    turn: int
    body: Body
    said: tuple[Said, ...]

    @property
    def results(self) -> list[str]:
        return [one.text for one in self.said if one.result]


class Model(model.Model):
    def __init__(
        self,
        script: Mapping[str, Sequence[Turn]],
        on_turn: Callable[[str, int], None] = lambda prompt, turn: None,
    ) -> None:
        """`on_turn` is called before a turn is said for the first time: all calls of the turn before have ended."""
        super().__init__(())
        self.prompts = script
        self.on_turn = on_turn
        self.requests: list[Request] = []
        self.troubles: list[BaseException] = []
        self._begun: set[tuple[str, int]] = set()

    def asked(self) -> set[tuple[str, int]]:
        """The turns of each prompt that were asked for, the last sentence included."""
        with self._lock:
            return {(request.prompt, request.turn) for request in self.requests if request.prompt}

    def answer(self, path: str, body: Body) -> Message | None:
        try:
            return super().answer(path, body)
        except Exception as error:
            self.troubles.append(error)  # it is raised again where the test is
            raise ValueError(error) from error

    def calls(self, number: int, said: Sequence[Said], body: Body) -> Sequence[ModelCall]:
        prompt, done = self._place(said)
        turns = self.prompts.get(prompt, ()) if offers_tools(body) else ()
        turn = 0
        while turn < len(turns) and len(turns[turn]) <= done:
            done -= len(turns[turn])
            turn += 1
        with self._lock:
            self.requests.append(Request(prompt if turns else "", turn, body, tuple(said)))
            is_new = bool(turns) and (prompt, turn) not in self._begun
            self._begun.add((prompt, turn))
        if is_new:
            self.on_turn(prompt, turn)
        return [ModelCall(*call) for call in turns[turn]] if turn < len(turns) else ()

    def _place(self, said: Sequence[Said]) -> tuple[str, int]:
        prompt, done = "", 0
        for one in said:
            if one.result:
                done += 1
            elif named := [
                name for name in self.prompts if name in (line.strip(' "') for line in one.text.splitlines())
            ]:
                prompt, done = named[-1], 0
        return prompt, done
