"""Find secrets in texts, for the check that refuses them and for every view, which masks them.

What is masked is only what a reader sees: the store keeps it, because undo puts it back. A mask errs towards masking,
the check towards silence; both read the same rules. Time grows with the length of the text and nothing else.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from takeback.policy.secret_shapes import (
    HEADERS,
    HINTS,
    PRIVATE_KEY,
    PUTTY_KEY,
    SIGNS,
    SecretPlace,
    pattern_of,
)

MASK = "[masked]"


class FoundSecret(NamedTuple):
    line: int
    kind: str


# -- for the check


_PROGRAMS = (
    ".c", ".cc", ".cpp", ".cs", ".go", ".h", ".java", ".js", ".jsx", ".kt", ".lua", ".mjs", ".php", ".pl", ".py",
    ".pyi", ".rb", ".rs", ".scala", ".swift", ".ts", ".tsx",
)  # fmt: skip


def is_program(name: str) -> bool:
    """Whether a word without quotes is more likely a variable than a value, by the name of the file."""
    return name.lower().endswith(_PROGRAMS)


def first_secret(lines: Iterable[bytes], program: bool = False) -> FoundSecret | None:
    """The first secret and its line; lines are bytes, so that any file can be looked at."""
    number = 1
    for raw in lines:
        found = next((one for one in _found(raw.decode("utf-8", "replace"), program) if one.sure), None)
        if found:
            return FoundSecret(number, found.kind)
        number += raw.endswith(b"\n")
    return None


# -- for views


def masked(text: str) -> str:
    """The same text with each secret in it masked; masking it again changes nothing."""
    pieces: list[str] = []
    place = 0
    for one in _joined(_found(text)):
        pieces += (text[place : one.start + one.shown], MASK)
        place = one.end
    return "".join((*pieces, text[place:])) if pieces else text


def masked_lines(lines: Iterable[str], joint: str = "\n") -> list[str]:
    """The lines of one text, each as it is masked in the whole: a key has many, and only two of them say so."""
    words = list(lines)
    text = joint.join(words)
    found = _joined(_found(text))
    if not found:
        return words
    told: list[str] = []
    start = place = 0
    for word in words:
        end, rest, pieces = start + len(word), start, list[str]()
        while place < len(found) and found[place].start < end:
            one = found[place]
            if one.end > rest:
                first = max(one.start + one.shown, rest)
                pieces += (text[rest : max(first, rest)], MASK)
                rest = min(one.end, end)
            if one.end > end:
                break
            place += 1
        told.append("".join((*pieces, text[rest:end])))
        start = end + 1
    return told


def masked_json(value: Any) -> Any:
    """JSON with the secrets in it masked: by the name that a value has, and by how it looks."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        if items and all(isinstance(one, str) for one in items):  # lines, or the words of a command
            return masked_lines(items, "\n" if any(PRIVATE_KEY in one for one in items) else " ")
        return [masked_json(one) for one in items]
    if not isinstance(value, dict):
        return value
    found = cast("dict[str, Any]", value)
    named = next((one for key in ("name", "key", "header") if isinstance(one := found.get(key), str)), "")
    return {
        masked(name): _masked_under(named if name == "value" and named else name, one)
        for name, one in found.items()
    }


def _masked_under(name: str, value: Any) -> Any:
    if isinstance(value, str) and any(hint in name.lower() for hint in (*HINTS, *HEADERS)):
        from takeback.policy.secret_values import is_kept_under

        if is_kept_under(name, value):
            return MASK
    return masked_json(value)


def _joined(found: Iterable[SecretPlace]) -> list[SecretPlace]:
    """In order, and none over another."""
    told: list[SecretPlace] = []
    for one in sorted(one for one in found if one.end > one.start):
        if told and one.start < told[-1].end:
            if one.end > told[-1].end:
                told[-1] = told[-1]._replace(end=one.end)
            continue
        told.append(one)
    return told


def may_hold_secret(text: str) -> bool:
    """Of JSON as text: False means that `masked_json` would change nothing. Much faster, for many records."""
    plain = text.replace('"key":""', "").replace("file://", "")  # in nearly every record
    lower = plain.lower()
    return (
        "\\" in plain  # what is escaped may look otherwise
        or "://" in plain
        or PRIVATE_KEY in plain
        or PUTTY_KEY in plain
        or any(hint in lower for hint in (*HINTS, *HEADERS))
        or any(sign in plain for sign, _ in SIGNS)
    )


# -- finding


def _found(text: str, program: bool = False) -> Iterator[SecretPlace]:
    if PRIVATE_KEY in text or PUTTY_KEY in text:
        from takeback.policy.secret_values import private_keys

        yield from private_keys(text)
    signs = [shape for sign, shape in SIGNS if sign in text]
    lower = text.lower()
    hints = any(hint in lower for hint in HINTS)
    if not (signs or hints or "://" in text):
        return
    from takeback.policy.secret_values import in_addresses, is_placeholder, written_out

    for shape in dict.fromkeys(signs):
        for one in pattern_of(shape).finditer(text):
            if shape.around and _is_credential(one["v"], shape.mixed):
                yield SecretPlace(*one.span("v"), shape.kind, shape.sure)
            elif not shape.around and not is_placeholder(one.group()):
                yield _of_token(one, shape.kind, shape.sure)
    if hints:
        yield from written_out(text, program)
    if "://" in text:
        yield from in_addresses(text)


def _of_token(one: "re.Match[str]", kind: str, sure: bool) -> SecretPlace:
    """Its first characters are the same for all of its kind."""
    if one.groupdict().get("v"):
        return SecretPlace(*one.span("v"), kind, sure)
    return SecretPlace(*one.span(), kind, sure, shown=min(4, len(one.group()) // 4))


def _is_credential(value: str, mixed: bool) -> bool:
    from takeback.policy.secret_values import is_mixed, is_no_value

    if is_no_value(value):
        return False
    return not mixed or len(value) >= 20 or is_mixed(value)
