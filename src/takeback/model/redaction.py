"""What is left of records when their content is erased, and how words are found wherever they may stand."""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from takeback.errors import Misuse
from takeback.model.change import DECIDED_AT, PARTIAL, UNDO
from takeback.model.lifecycle import BIRTHS, OF_EFFECTS
from takeback.model.record import Kind, Record

GONE = "(redacted)"
SHORTEST = 4  # bytes: fewer stand in nearly every record by chance
_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# Texts that are JSON themselves: what stands for them must be, too.
_JSON = ("state", "value", "data", "arguments", "result", "answer")
# What the records of a run hold that a person or a program wrote.
_OF_RUN = (
    "name", "key", "arguments", "result", "error", "why", "state", "value", "summary", "cwd", "environment", "path",
    "data", "failed", "answer", "asked", "only",
)  # fmt: skip
_OF_EFFECT: dict[Kind, tuple[str, ...]] = {
    Kind.DECIDE: ("approved", "by", "known_by", "detail"),
    Kind.ABORT: ("begun", "given_up"),
    Kind.STICK: ("begun", "given_up"),
    Kind.DROP: ("reason", "until", "bytes"),
    Kind.FORGET: ("bound",),
    Kind.ERASE: ("bound",),
}


class SearchText(NamedTuple):
    """A text, in every form in which a record or a captured content holds it."""

    patterns: tuple[bytes, ...]

    def __contains__(self, data: object) -> bool:
        assert isinstance(data, bytes)
        return any(pattern in data for pattern in self.patterns)

    @property
    def longest(self) -> int:
        return max(map(len, self.patterns))


def words_of(text: str) -> SearchText:
    from urllib.parse import quote_from_bytes

    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) < SHORTEST:
        raise Misuse(
            f"A text to redact needs at least {SHORTEST} bytes.",
            hint="A shorter one stands in many records by chance. Name the effects instead: `takeback redact ID`.",
        )
    forms = [raw, quote_from_bytes(raw).encode(), quote_from_bytes(raw, safe="/:@+,=~!$&'()*;").encode()]
    forms += [
        json.dumps(text, ensure_ascii=ascii)[1:-1].encode("utf-8", "surrogatepass") for ascii in (True, False)
    ]
    forms += [raw.hex().encode(), text.encode("utf-16-le", "surrogatepass"), *_in_base64(raw)]
    twice = [json.dumps(form.decode("utf-8", "surrogateescape"))[1:-1] for form in forms[:5]]
    forms += [one.encode("utf-8", "surrogateescape") for one in twice]
    return SearchText(tuple(dict.fromkeys(forms)))


def _in_base64(raw: bytes) -> list[bytes]:
    """As it stands within something longer: at each of three offsets, without the characters that others share."""
    found: list[bytes] = []
    for before in range(3):
        coded = b64encode(b"\0" * before + raw).rstrip(b"=")
        end = len(coded) if (before + len(raw)) % 3 == 0 else len(coded) - 1
        found.append(coded[(0, 2, 3)[before] : end])
    return [one for one in found if len(one) >= SHORTEST]


def digests_in(data: bytes) -> set[bytes]:
    """What may be names of blobs, as text."""
    return set(_DIGEST.findall(data))


def resource_left(effect: str) -> str:
    return f"redacted:///{effect}"


def left_of(record: Record, goes: Callable[[bytes], bool], whole: bool) -> dict[str, Any]:
    """What the record says from now on. Of an effect only what other records depend on; of a run or of the store all
    that does not go, or for `whole` nothing that someone wrote."""
    if record.effect and record.kind in OF_EFFECTS:
        return _masked(_left_of_effect(record), goes) | {"redacted": True}
    body = record.body
    if whole:
        body = {name: _blank(name, value) if name in _OF_RUN else value for name, value in body.items()}
    return _masked(body, goes) | {"redacted": True}


def _left_of_effect(record: Record) -> dict[str, Any]:
    body = record.body
    if record.kind not in BIRTHS:
        left = {name: body[name] for name in _OF_EFFECT.get(record.kind, ()) if name in body}
        return left | ({"digest": ""} if record.kind is Kind.DECIDE else {})
    args: dict[str, Any] = body.get("args", {})
    wanted = ("waits", "on_conflict", PARTIAL, DECIDED_AT) if body["kind"] == UNDO else ("waits",)
    left = {
        "adapter": body["adapter"],
        "kind": body["kind"],
        "resource": resource_left(record.effect),
        "summary": GONE,
        "key": "",
        "args": {name: args[name] for name in wanted if name in args},
        "needs": body.get("needs"),
        "undoes": body.get("undoes"),
    }
    return {name: value for name, value in left.items() if value or name == "key"}


def _blank(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return []
    if isinstance(value, dict) and name not in _JSON:
        return {}
    if name in ("key", "cwd", "asked"):
        return ""
    return f'"{GONE}"' if name in _JSON else GONE


def _masked(value: Any, goes: Callable[[bytes], bool], name: str = "") -> Any:
    if isinstance(value, str):
        if not goes(value.encode("utf-8", "surrogateescape")):
            return value
        if name in ("project", "workflow"):
            return ""
        return _blank(name, value) if name == "key" or name in _JSON else GONE
    if isinstance(value, dict):
        inside = cast("dict[str, Any]", value)
        if name in _JSON and any(goes(str(one).encode()) for one in inside.values()):  # kept in a blob
            return f'"{GONE}"'
        return {
            (GONE if goes(key.encode("utf-8", "surrogateescape")) else key): _masked(one, goes, key)
            for key, one in inside.items()
        }
    if isinstance(value, (list, tuple)):
        return [_masked(one, goes) for one in cast("list[Any]", value)]
    if isinstance(value, int) and not isinstance(value, bool) and goes(str(value).encode()):
        return 0
    return value


def as_read(body: dict[str, Any]) -> dict[str, Any]:
    """Of a record whose body was erased: no edit of the store gives it a way back."""
    return {name: value for name, value in body.items() if name != "remedy"} | {"redacted": True}
