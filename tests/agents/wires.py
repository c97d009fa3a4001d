"""Four ways to speak to a model: what an agent asks, and what it hears, on each wire.

`asked` reads a request into what the conversation holds so far; `answer` says one turn: calls, or a last sentence.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

DONE = "All done."
_USED = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}

type_of_answer = tuple[str, bytes]  # the kind of content, and the content


class Said(NamedTuple):
    """One entry of a conversation that matters here: what the user said, or what a tool gave back."""

    result: bool
    text: str


class Call(NamedTuple):
    """A tool call in the words of one agent."""

    name: str
    input: Any  # a mapping, or the text of a tool that takes text (Codex)
    id: str


class Wire(NamedTuple):
    asked: Callable[[Mapping[str, Any]], list[Said]]
    answer: Callable[[Mapping[str, Any], Sequence[Call], int, bool], type_of_answer]


def wire_of(path: str) -> Wire | None:
    """By the path of the request; nothing for what is no turn."""
    for ending, wire in _WIRES.items():
        if path.endswith(ending):
            return wire
    return None


def streams(path: str, body: Mapping[str, Any]) -> bool:
    return ":streamGenerateContent" in path or bool(body.get("stream"))


def offers_tools(body: Mapping[str, Any]) -> bool:
    """Else it asks for a title or a summary. Newer models of Codex find their tools in the conversation."""
    return bool(body.get("tools")) or any(
        item.get("type") == "additional_tools" for item in body.get("input", ())
    )


def plain(content: Any) -> str:
    """The text in what may be a text, a block, or a list of blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        inner = [
            content[key]
            for key in ("text", "encrypted_content", "content", "output", "error")
            if key in content
        ]
        return "\n".join(map(plain, inner)) if inner else json.dumps(content)
    return "\n".join(map(plain, content or ()))


def _messages_asked(body: Mapping[str, Any]) -> list[Said]:
    return list(_of_messages(body["messages"]))


def _of_messages(messages: Sequence[Mapping[str, Any]]) -> Iterator[Said]:
    for message in messages:
        if message["role"] != "user":
            continue
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "tool_result":
                yield Said(True, plain(block.get("content")))
            elif block["type"] == "text":
                yield Said(False, block["text"])


def _messages_answer(
    body: Mapping[str, Any], calls: Sequence[Call], number: int, stream: bool
) -> type_of_answer:
    blocks: list[dict[str, Any]] = [
        {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": call.input}
        for call in calls
    ] or [{"type": "text", "text": DONE}]
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    usage = {
        "input_tokens": 10, "output_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0
    }  # fmt: skip
    message = {
        "id": f"msg_{number:04}", "type": "message", "role": "assistant", "model": body.get("model", "model"),
        "content": blocks, "usage": usage, **stop,
    }  # fmt: skip
    if not stream:
        return _json(message)
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    ]
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": stop, "usage": usage})
    events.append({"type": "message_stop"})
    return _events(events, named=True)


def _responses_asked(body: Mapping[str, Any]) -> list[Said]:
    said: list[Said] = []
    for item in body.get("input", []):
        kind = item.get("type", "message")
        if kind.endswith("_call_output"):
            said.append(Said(True, plain(item["output"])))
        elif kind == "agent_message" or (kind == "message" and item.get("role") == "user"):
            said.append(Said(False, plain(item["content"])))
    return said


def _responses_answer(body: Mapping[str, Any], calls: Sequence[Call], number: int, _: bool) -> type_of_answer:
    items: list[dict[str, Any]] = []
    for call in calls:
        item: dict[str, Any] = {
            "id": f"fc_{call.id}", "call_id": f"call_{call.id}", "name": call.name, "status": "completed"
        }  # fmt: skip
        if isinstance(call.input, str):
            items.append(item | {"type": "custom_tool_call", "input": call.input})
        else:
            space, _, name = call.name.rpartition("/")  # a tool of a namespace: space/name
            item |= {"name": name, **({"namespace": space} if space else {})}
            items.append(item | {"type": "function_call", "arguments": json.dumps(call.input)})
    if not items:
        text = {"type": "output_text", "text": DONE, "annotations": []}
        items.append(
            {
                "id": f"msg_{number:04}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [text],
            }
        )
    usage = {
        "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2,
    }  # fmt: skip
    response = {
        "id": f"resp_{number:04}", "object": "response", "status": "completed", "model": body.get("model"),
        "output": items, "usage": usage,
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
    ]
    for index, item in enumerate(items):
        for step in ("added", "done"):
            events.append({"type": f"response.output_item.{step}", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": response})
    return _events(events, named=True)


def _gemini_asked(body: Mapping[str, Any]) -> list[Said]:
    said: list[Said] = []
    for content in body["contents"]:
        for part in content.get("parts", []) if content.get("role", "user") == "user" else ():
            if "functionResponse" in part:
                said.append(Said(True, plain(part["functionResponse"].get("response", {}))))
            elif "text" in part:
                said.append(Said(False, part["text"]))
    return said


def _gemini_answer(_: Mapping[str, Any], calls: Sequence[Call], __: int, stream: bool) -> type_of_answer:
    parts: list[dict[str, Any]] = [
        {"functionCall": {"name": call.name, "args": call.input}} for call in calls
    ]
    candidate = {
        "content": {"role": "model", "parts": parts or [{"text": DONE}]}, "finishReason": "STOP", "index": 0
    }  # fmt: skip
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    whole = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "model"}
    return _events([whole], named=False) if stream else _json(whole)


def _chat_asked(body: Mapping[str, Any]) -> list[Said]:
    return [
        Said(message["role"] == "tool", plain(message.get("content")))
        for message in body["messages"]
        if message["role"] in ("user", "tool")
    ]


def _chat_answer(body: Mapping[str, Any], calls: Sequence[Call], number: int, stream: bool) -> type_of_answer:
    whole = {"id": f"chat-{number:04}", "created": 1, "model": body.get("model")}
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
    if not stream:
        choice = {"index": 0, "message": message, "finish_reason": why}
        return _json({**whole, "object": "chat.completion", "choices": [choice], "usage": _USED})
    piece = {**whole, "object": "chat.completion.chunk"}
    first = {**piece, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
    last = {**piece, "choices": [{"index": 0, "delta": {}, "finish_reason": why}], "usage": _USED}
    return _events([first, last, "[DONE]"], named=False)


def _json(value: Any) -> type_of_answer:
    return "application/json", json.dumps(value).encode()


def _events(events: Sequence[Any], named: bool) -> type_of_answer:
    lines: list[str] = []
    for event in events:
        lines += [f"event: {event['type']}\n"] if named else []
        lines.append(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
    return "text/event-stream", "".join(lines).encode()


_GEMINI = Wire(_gemini_asked, _gemini_answer)
_WIRES = {
    "/messages": Wire(_messages_asked, _messages_answer),
    "/responses": Wire(_responses_asked, _responses_answer),
    ":streamGenerateContent": _GEMINI,
    ":generateContent": _GEMINI,
    "/chat/completions": Wire(_chat_asked, _chat_answer),
}
