"""A model on loopback that says what a script says, to an agent that is being tried. No account, no network.

Each turn is one call. The model counts the results in a conversation and says the next call; after the last one it
says that it is done. It knows four wires: Anthropic Messages, OpenAI Responses, OpenAI chat and Gemini.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self, cast

from takeback.frontends.agents.launch import ModelCall

DONE = "All done."
_MOST = 16 << 20  # bytes of a request
Body = Mapping[str, Any]
Message = tuple[str, bytes]  # the kind of content, and the content


class Said(NamedTuple):
    """One entry of a conversation that matters here: what the user said, or what a tool gave back."""

    result: bool
    text: str


class Model:
    """Serves while it is open. Several requests may come at the same time."""

    def __init__(self, script: Sequence[ModelCall]) -> None:
        self.script = script
        self.results: list[str] = []  # of the tools, as the agent told them last
        self.turns = 0  # that it was asked for
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

    def answer(self, path: str, body: Body) -> Message | None:
        """None for what is no turn: counting tokens, listing models."""
        wire = next((one for ending, one in _WIRES.items() if path.endswith(ending)), None)
        if wire is None:
            return None
        said = list(wire.asked(body))
        with self._lock:
            self.turns += 1
            number = self.turns
        calls = self.calls(number, said, body)
        # Ids differ between messages, or an agent takes two turns for one.
        named = [_Named(*call, f"{number:04}{index:02}") for index, call in enumerate(calls)]
        return wire.answer(body, named, number, "stream" in path or bool(body.get("stream")))

    def calls(self, number: int, said: Sequence[Said], body: Body) -> Sequence[ModelCall]:
        """What the model does next in this conversation; nothing where it has come to its end."""
        if not offers_tools(body):
            return ()
        found = [one.text for one in said if one.result]
        with self._lock:
            if len(found) >= len(self.results):
                self.results = found
        return self.script[len(found) : len(found) + 1]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, model: Model) -> None:
        super().__init__(("127.0.0.1", 0), _Desk)
        self.model = model

    def handle_error(self, request: object, client_address: object) -> None:
        """An agent that is killed hangs up."""


class _Desk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._reply("application/json", b"")

    def do_GET(self) -> None:
        self._reply("application/json", b'{"data":[],"models":[]}')

    def do_POST(self) -> None:
        try:
            size = int(self.headers.get("Content-Length") or 0)
            if not 0 <= size <= _MOST:
                raise ValueError(size)
            body = json.loads(self.rfile.read(size) or b"{}")
            answer = self.server.model.answer(self.path.partition("?")[0], body)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._reply("application/json", b'{"error":{"message":"not understood"}}', 400)
            return
        self._reply(*(answer or ("application/json", b'{"input_tokens":10,"totalTokens":10}')))

    def _reply(self, kind: str, data: bytes, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


# The wires: what a conversation holds so far, and one turn.


class _Named(NamedTuple):
    """A call with the id that its result will have."""

    name: str
    input: Any
    id: str


class _Wire(NamedTuple):
    asked: Callable[[Body], Iterator[Said]]
    answer: Callable[[Body, Sequence[_Named], int, bool], Message]


def offers_tools(body: Body) -> bool:
    """Else the agent asks for a title or a summary. Newer models of Codex find their tools in the conversation."""
    more = (item.get("type") == "additional_tools" for item in _dicts(body.get("input")))
    return bool(body.get("tools")) or any(more)


def _dicts(value: Any) -> list[Body]:
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Body", one) for one in listed if isinstance(one, dict)]


def _plain(content: Any) -> str:
    """The text in what may be a text, a block, or a list of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        block = cast("Body", content)
        names = ("text", "encrypted_content", "content", "output", "error")
        inner = [block[name] for name in names if name in block]
        return "\n".join(map(_plain, inner)) if inner else json.dumps(content)
    return "\n".join(map(_plain, cast("list[Any]", content))) if isinstance(content, list) else ""


def _messages_asked(body: Body) -> Iterator[Said]:
    for message in _dicts(body.get("messages")):
        if message.get("role") != "user":
            continue
        if isinstance(message.get("content"), str):
            yield Said(False, message["content"])
        for block in _dicts(message.get("content")):
            if block.get("type") == "tool_result":
                yield Said(True, _plain(block.get("content")))
            elif block.get("type") == "text":
                yield Said(False, _plain(block))


def _messages_answer(body: Body, calls: Sequence[_Named], number: int, stream: bool) -> Message:
    blocks: list[dict[str, Any]] = [
        {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": call.input}
        for call in calls
    ] or [{"type": "text", "text": DONE}]
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    usage = {
        "input_tokens": 10, "output_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
    }  # fmt: skip
    whole = {
        "id": f"msg_{number:06}", "type": "message", "role": "assistant", "model": body.get("model", "model"),
        "content": blocks, "usage": usage, **stop,
    }  # fmt: skip
    if not stream:
        return _json(whole)
    events: list[Body] = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}]
    for index, block in enumerate(blocks):
        empty: Body = {**block, "text": ""}
        delta = {"type": "text_delta", "text": block.get("text")}
        if "input" in block:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": stop, "usage": usage})
    return _events((*events, {"type": "message_stop"}))


def _responses_asked(body: Body) -> Iterator[Said]:
    for item in _dicts(body.get("input")):
        kind = str(item.get("type", "message"))
        if kind.endswith("_call_output"):
            yield Said(True, _plain(item.get("output")))
        elif kind == "agent_message" or (kind == "message" and item.get("role") == "user"):
            yield Said(False, _plain(item.get("content")))


def _responses_answer(body: Body, calls: Sequence[_Named], number: int, stream: bool) -> Message:
    items: list[dict[str, Any]] = []
    for call in calls:
        item = {"id": f"fc_{call.id}", "call_id": f"call_{call.id}", "name": call.name, "status": "completed"}
        if isinstance(call.input, str):
            items.append(item | {"type": "custom_tool_call", "input": call.input})
        else:
            space, _, name = call.name.rpartition("/")  # a tool of a namespace: space/name
            item |= {"name": name, **({"namespace": space} if space else {})}
            items.append(item | {"type": "function_call", "arguments": json.dumps(call.input)})
    if not items:
        text: dict[str, Any] = {"type": "output_text", "text": DONE, "annotations": []}
        about = {"id": f"msg_{number:06}", "type": "message", "role": "assistant", "status": "completed"}
        items.append({**about, "content": [text]})
    usage = {
        "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2,
    }  # fmt: skip
    whole = {
        "id": f"resp_{number:06}", "object": "response", "status": "completed", "model": body.get("model"),
        "output": items, "usage": usage,
    }  # fmt: skip
    steps = [
        {"type": f"response.output_item.{step}", "output_index": index, "item": item}
        for index, item in enumerate(items)
        for step in ("added", "done")
    ]
    return _events((
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
        *steps,
        {"type": "response.completed", "response": whole},
    ))  # fmt: skip


def _gemini_asked(body: Body) -> Iterator[Said]:
    for content in _dicts(body.get("contents")):
        for part in _dicts(content.get("parts")) if content.get("role", "user") == "user" else ():
            if "functionResponse" in part:
                yield Said(True, _plain(part["functionResponse"].get("response", {})))
            elif "text" in part:
                yield Said(False, _plain(part["text"]))


def _gemini_answer(body: Body, calls: Sequence[_Named], number: int, stream: bool) -> Message:
    parts: list[Body] = [{"functionCall": {"name": call.name, "args": call.input}} for call in calls]
    content = {"role": "model", "parts": parts or [{"text": DONE}]}
    said = {"content": content, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    whole = {"candidates": [said], "usageMetadata": usage, "modelVersion": "model"}
    return _events((whole,)) if stream else _json(whole)


def _chat_asked(body: Body) -> Iterator[Said]:
    for message in _dicts(body.get("messages")):
        if message.get("role") in ("user", "tool"):
            yield Said(message["role"] == "tool", _plain(message.get("content")))


def _chat_answer(body: Body, calls: Sequence[_Named], number: int, stream: bool) -> Message:
    asked = [
        {
            "index": index, "id": f"call_{call.id}", "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.input)},
        }
        for index, call in enumerate(calls)
    ]  # fmt: skip
    message: dict[str, Any] = {"role": "assistant", "content": None if asked else DONE}
    message |= {"tool_calls": asked} if asked else {}
    why = "tool_calls" if asked else "stop"
    about = {"id": f"chat-{number:06}", "created": 1, "model": body.get("model")}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    if not stream:
        choice = {"index": 0, "message": message, "finish_reason": why}
        return _json({**about, "object": "chat.completion", "choices": [choice], "usage": usage})
    piece = {**about, "object": "chat.completion.chunk"}
    end: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": why}
    first = {**piece, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
    last = {**piece, "choices": [end], "usage": usage}
    return _events((first, last, "[DONE]"))


def _json(value: Any) -> Message:
    return "application/json", json.dumps(value).encode()


def _events(events: Sequence[Body | str]) -> Message:
    """As server-sent events; those with a type are named by it."""
    lines: list[str] = []
    for event in events:
        if not isinstance(event, str) and "type" in event:
            lines.append(f"event: {event['type']}\n")
        lines.append(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
    return "text/event-stream", "".join(lines).encode()


_GEMINI = _Wire(_gemini_asked, _gemini_answer)
_WIRES = {
    "/messages": _Wire(_messages_asked, _messages_answer),
    "/responses": _Wire(_responses_asked, _responses_answer),
    "/chat/completions": _Wire(_chat_asked, _chat_answer),
    ":streamGenerateContent": _GEMINI,
    ":generateContent": _GEMINI,
}
