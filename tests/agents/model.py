"""A model on loopback that says what a script says. No agent needs an account or the network to speak to it.

A script names prompts; each has turns, and a turn is the calls that the model makes at once. The model finds the last
of its prompts in a conversation, counts the results since, and says the next turn; after the last one it says "All
done.". A subagent's prompt is a prompt like any other: its conversation begins with it.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from tests.agents.wires import Call, Said, Wire, offers_tools, streams, wire_of

Turn = Sequence[tuple[str, Any]]  # name and input of each call, in the agent's words


class Request(NamedTuple):
    """A turn that an agent asked for."""

    prompt: str  # which of the script's; "" for another conversation (a title, a summary)
    turn: int
    body: Mapping[str, Any]
    said: tuple[Said, ...]

    @property
    def results(self) -> list[str]:
        return [one.text for one in self.said if one.result]


class Model:
    def __init__(
        self,
        script: Mapping[str, Sequence[Turn]],
        on_turn: Callable[[str, int], None] = lambda prompt, turn: None,
    ) -> None:
        """`on_turn` is called before a turn is said for the first time: all calls of the turn before have ended."""
        self.script = script
        self.on_turn = on_turn
        self.requests: list[Request] = []
        self.troubles: list[BaseException] = []
        self._begun: dict[tuple[str, int], list[Call]] = {}
        self._count = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def asked(self) -> set[tuple[str, int]]:
        """The turns of each prompt that were asked for, the last sentence included."""
        with self._lock:
            return {(request.prompt, request.turn) for request in self.requests if request.prompt}

    def say(self, wire: Wire, path: str, body: Mapping[str, Any]) -> tuple[str, bytes]:
        said = wire.asked(body)
        prompt, done = self._place(said)
        turns = self.script.get(prompt, ()) if offers_tools(body) else ()
        turn = 0
        while turn < len(turns) and len(turns[turn]) <= done:
            done -= len(turns[turn])
            turn += 1
        with self._lock:
            self.requests.append(Request(prompt if turns else "", turn, body, tuple(said)))
            self._count += 1
            number, calls, is_new = self._count, self._begun.get((prompt, turn)), False
            if turns and calls is None:
                is_new = True
                asked = turns[turn] if turn < len(turns) else ()
                calls = [Call(*call, f"{number:04}{index:02}") for index, call in enumerate(asked)]
                self._begun[prompt, turn] = calls
        if is_new:
            self.on_turn(prompt, turn)
        # Ids differ between messages, or an agent takes two turns for one.
        return wire.answer(body, calls or (), number, streams(path, body))

    def _place(self, said: Sequence[Said]) -> tuple[str, int]:
        prompt, done = "", 0
        for one in said:
            if one.result:
                done += 1
            elif named := [
                name for name in self.script if name in (line.strip(' "') for line in one.text.splitlines())
            ]:
                prompt, done = named[-1], 0
        return prompt, done


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, model: Model) -> None:
        super().__init__(("127.0.0.1", 0), _Desk)
        self.model = model

    def handle_error(self, request: object, client_address: object) -> None:
        """An agent that is killed hangs up; that is no trouble of ours."""


class _Desk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._reply("application/json", b"")

    def do_GET(self) -> None:
        self._reply("application/json", b'{"data":[],"models":[]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        wire = wire_of(path)
        if wire is None:
            self._reply("application/json", b'{"input_tokens":10,"totalTokens":10}')
            return
        try:
            answer = self.server.model.say(wire, path, body)
        except Exception as error:  # noqa: BLE001 - it is raised again where the test is
            self.server.model.troubles.append(error)
            self._reply("application/json", json.dumps({"error": {"message": repr(error)}}).encode(), 400)
            return
        self._reply(*answer)

    def _reply(self, kind: str, data: bytes, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
