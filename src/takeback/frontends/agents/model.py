"""A model on loopback that says what a script says, to an agent that is being tried. No account, no network.

Each turn is one call. The model counts the results in a conversation and says the next call; after the last one it
says that it is done. It knows four wires: Anthropic Messages, OpenAI Responses, OpenAI chat and Gemini.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self, cast

from takeback.frontends.agents.launch import ModelCall

DONE = "All done."
_MOST = 16 << 20  # bytes of a request
Body = Mapping[str, Any]
Message = tuple[str, bytes]  # the kind of content, and the content


class Model:
    """Serves while it is open. Several requests may come at the same time."""

    def __init__(self, script: Sequence[ModelCall]) -> None:
        self.script = script
        self.results: list[str] = []  # of the tools, as the agent told them last
        self.asked = 0  # requests for a turn
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
        call = None
        with self._lock:
            self.asked += 1
            number = self.asked
            if _offers_tools(body):
                found = wire.results(body)
                if len(found) >= len(self.results):
                    self.results = found
                call = self.script[len(found)] if len(found) < len(self.script) else None
        streams = "stream" in path or bool(body.get("stream"))
        return wire.said(body, call, number, streams)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

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


# The wires: what the tools gave back so far, and one turn.


class _Wire(NamedTuple):
    results: Callable[[Body], list[str]]
    said: Callable[[Body, ModelCall | None, int, bool], Message]


def _offers_tools(body: Body) -> bool:
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
        inner = [block[key] for key in ("text", "content", "output", "error") if key in block]
        return "\n".join(map(_plain, inner)) if inner else json.dumps(content)
    return "\n".join(map(_plain, cast("list[Any]", content))) if isinstance(content, list) else ""


def _messages_results(body: Body) -> list[str]:
    blocks = (block for message in _dicts(body.get("messages")) for block in _dicts(message.get("content")))
    return [_plain(block.get("content")) for block in blocks if block.get("type") == "tool_result"]


def _messages_said(body: Body, call: ModelCall | None, number: int, stream: bool) -> Message:
    block: dict[str, Any] = {"type": "text", "text": DONE}
    if call:
        block = {"type": "tool_use", "id": f"toolu_{number:06}", "name": call.name, "input": call.input}
    stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    usage = {
        "input_tokens": 10, "output_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
    }  # fmt: skip
    whole = {
        "id": f"msg_{number:06}", "type": "message", "role": "assistant", "model": body.get("model", "model"),
        "content": [block], "usage": usage, **stop,
    }  # fmt: skip
    if not stream:
        return _json(whole)
    empty: dict[str, Any] = {**block, "input": {}} if call else {**block, "text": ""}
    given = json.dumps(block.get("input"))
    delta = (
        {"type": "input_json_delta", "partial_json": given} if call else {"type": "text_delta", "text": DONE}
    )
    return _events((
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": usage},
        {"type": "message_stop"},
    ))  # fmt: skip


def _responses_results(body: Body) -> list[str]:
    items = _dicts(body.get("input"))
    return [_plain(one.get("output")) for one in items if str(one.get("type", "")).endswith("_call_output")]


def _responses_said(body: Body, call: ModelCall | None, number: int, stream: bool) -> Message:
    item: dict[str, Any] = {"id": f"item_{number:06}", "status": "completed"}
    if call is None:
        text: dict[str, Any] = {"type": "output_text", "text": DONE, "annotations": []}
        item |= {"type": "message", "role": "assistant", "content": [text]}
    else:
        item |= {"call_id": f"call_{number:06}", "name": call.name}
        if isinstance(call.input, str):
            item |= {"type": "custom_tool_call", "input": call.input}
        else:
            item |= {"type": "function_call", "arguments": json.dumps(call.input)}
    usage = {
        "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2,
    }  # fmt: skip
    whole = {
        "id": f"resp_{number:06}", "object": "response", "status": "completed", "model": body.get("model"),
        "output": [item], "usage": usage,
    }  # fmt: skip
    return _events((
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ))  # fmt: skip


def _gemini_results(body: Body) -> list[str]:
    parts = (part for content in _dicts(body.get("contents")) for part in _dicts(content.get("parts")))
    return [
        _plain(part["functionResponse"].get("response", {})) for part in parts if "functionResponse" in part
    ]


def _gemini_said(body: Body, call: ModelCall | None, number: int, stream: bool) -> Message:
    part = {"functionCall": {"name": call.name, "args": call.input}} if call else {"text": DONE}
    said = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    whole = {"candidates": [said], "usageMetadata": usage, "modelVersion": "model"}
    return _events((whole,)) if stream else _json(whole)


def _chat_results(body: Body) -> list[str]:
    messages = _dicts(body.get("messages"))
    return [_plain(one.get("content")) for one in messages if one.get("role") == "tool"]


def _chat_said(body: Body, call: ModelCall | None, number: int, stream: bool) -> Message:
    message: dict[str, Any] = {"role": "assistant", "content": None if call else DONE}
    if call:
        given = {"name": call.name, "arguments": json.dumps(call.input)}
        message["tool_calls"] = [
            {"index": 0, "id": f"call_{number:06}", "type": "function", "function": given}
        ]
    why = "tool_calls" if call else "stop"
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


_GEMINI = _Wire(_gemini_results, _gemini_said)
_WIRES = {
    "/messages": _Wire(_messages_results, _messages_said),
    "/responses": _Wire(_responses_results, _responses_said),
    "/chat/completions": _Wire(_chat_results, _chat_said),
    ":streamGenerateContent": _GEMINI,
    ":generateContent": _GEMINI,
}
