"""Secrets that only their name or place shows, such as password = …, private keys, and what is no secret."""

import math
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from takeback.policy.secret_shapes import HEADERS, SecretPlace

_PASSWORDS = r"pass(?:word|wd|phrase|code)?|pwd"
_OTHERS = (
    r"secret|token|credentials?|signature|(?:api|access|secret|private|auth|account|encryption|signing|shared|master"
    r"|subscription|webhook|admin|storage|license|session|function|app|service)[_-]?key"
)
_AFTER = r"(?:[_-]?(?:base|value|\d{1,2}|prod(?:uction)?|dev|staging|live|test|old|new))?"
_LOOKED_AT = 256  # characters of a value that tell what it is
_LONGEST_NAME = 80
_NAME_END = re.compile(r"[A-Za-z0-9_.-]*\Z")
_BECOMES = re.compile(r"\\{0,3}[\"']? (?:→|->|=>) [\"']?(?P<v>[^\s\"'\x00-\x1f]{1,512})")
_CLOSES = re.compile(r"[^\s\"'`<>\x00-\x1f]+")


@cache
def _named() -> "re.Pattern[str]":
    return re.compile(
        rf"(?i)(?:(?P<password>{_PASSWORDS})|{_OTHERS}){_AFTER}"
        r"(?:\\{0,3}[\"']?\]?\s{0,8}(?:=>|:=|={1,3}|:\s{0,4}[a-z_.]{2,20}\s{0,4}=(?=\s{0,4}[\"'])|:)\s{0,8}"
        r"|(?P<element>>)|(?P<option>\s{1,4}))"
        r"(?:[fbru]{1,2}(?=[\"']))?(?P<quote>\\{0,3}[\"'])?"
    )


@cache
def _whole_name() -> "re.Pattern[str]":
    return re.compile(
        rf"(?i)(?:.{{0,{_LONGEST_NAME}}}[_. -])?[a-z0-9]{{0,40}}?(?:(?P<password>{_PASSWORDS})|{_OTHERS}){_AFTER}",
        re.DOTALL,
    )


class _Given(NamedTuple):
    name: str
    is_password: bool
    value: str
    quoted: bool
    is_line: bool = False  # of a file of variables, or of a request: then a blank belongs to it


def is_kept_under(name: str, value: str) -> bool:
    """Whether a value of JSON is a secret by its name."""
    lower = name.lower()
    if lower in HEADERS:
        return not is_placeholder(value)
    found = _whole_name().fullmatch(name[-2 * _LONGEST_NAME :])
    if found is None:
        return False
    # "Enter your password" is a label.
    is_line = any(character.isdigit() for character in value)
    return _is_written_out(_Given(name, bool(found["password"]), value, quoted=True, is_line=is_line))


def written_out(text: str, program: bool) -> Iterator[SecretPlace]:
    place = 0
    while found := _named().search(text, place):
        place = found.end()
        before = _NAME_END.search(text, max(0, found.start() - _LONGEST_NAME), found.start())
        first = before.start() if before else found.start()
        name = text[first : _end_of_name(found, text)]
        if found["option"] and not (name.startswith("--") and text[place : place + 1] != "-"):
            place = found.end() - 1
            continue
        quote: str = found["quote"] or ""
        end, is_line = _end_of_value(text, found, first, quote)
        value = text[place : min(end, place + _LOOKED_AT)]
        given = _Given(name.lstrip("-"), bool(found["password"]), value, bool(quote), is_line)
        if _is_written_out(given, program):
            sure = _is_written_out(given._replace(is_line=False), program) and not (
                found["option"] or found["element"]
            )
            yield SecretPlace(place, end, "a password or key written out", sure)
            place = end
            if becomes := _BECOMES.match(text, end):
                yield SecretPlace(*becomes.span("v"), "a password or key written out", False)
                place = becomes.end()


def _end_of_name(found: "re.Match[str]", text: str) -> int:
    end = found.start()
    while end < found.end() and (text[end].isalnum() or text[end] in "_-"):
        end += 1
    return end


def _end_of_value(text: str, found: "re.Match[str]", first: int, quote: str) -> tuple[int, bool]:
    """Where the value ends, and whether it is the rest of a line of variables."""
    start = found.end()
    is_line = found.group().endswith(("=", f"={quote}")) and _begins_line(text, first)
    if quote:
        line = text.find("\n", start, start + 8 * _LOOKED_AT)
        end = text.find(quote, start, line if line >= 0 else start + 64 * _LOOKED_AT)
        while end > start and len(quote) == 1 and text[end - 1] == "\\" and quote == '"':
            end = text.find(quote, end + 1, line if line >= 0 else end + 64 * _LOOKED_AT)
        if end >= 0:
            return end, is_line
    if found["element"]:
        end = text.find("<", start, start + 8 * _LOOKED_AT)
        return (end if end >= 0 else start), True
    rest = _CLOSES.match(text, start, start + _LOOKED_AT)
    end = rest.end() if rest else start
    value = text[start:end]
    if end - start >= _LOOKED_AT:  # longer than what is looked at: it is masked whole, or not at all
        rest = _CLOSES.match(text, start) if is_mixed(value) else None
        return (rest.end() if rest else end), False
    if "?" in text[max(0, first - _LOOKED_AT) : first] or text[first - 1 : first] in ("?", "&"):
        value = value.partition("&")[0]
    if not is_line:
        value = re.split(r"[,;#]", value)[0] if ";" in value or "," in value else value
    return start + len(value.rstrip("})]\\" if not is_line else "\\")), is_line


def _begins_line(text: str, first: int) -> bool:
    """Whether a name is the first word of its line, but for `export` and the sign of a difference."""
    begin = text.rfind("\n", max(0, first - 16), first) + 1
    lead = text[max(begin, first - 16) : first]
    return (begin > 0 or first <= 16) and lead.strip(" +-\t") in (
        "",
        "export",
        "set",
        "setenv",
        "ENV",
        "Environment",
    )


def _is_written_out(given: _Given, program: bool = False) -> bool:
    """Whether the value given to a name such as db_password or api_key is the secret itself."""
    name, value = given.name, given.value
    if len(value) < _SHORTEST or is_placeholder(value) or _OTHER_PASS.search(name):
        return False
    if " " in value and not (given.is_line or name.lower().endswith("passphrase")):
        return False
    if _NO_VALUE.fullmatch(value) or _VARIABLE.fullmatch(value):
        return False
    # `password=password` hands a variable on; `"password": "Password"` is a label.
    if value.lower() in (name.lower(), re.split(r"[_.-]", name.lower())[-1]):
        return False
    if not given.quoted and not given.is_line and (_CODE.search(value) or (program and not is_mixed(value))):
        return False
    if given.is_password and name.lower() != "pass":
        return True
    return not (value.isdigit() or _NAMELIKE.fullmatch(value))


# -- addresses


_USER = re.compile(r"[^\s/:@\"'<>\x00-\x1f]{0,256}:([^\s\"'<>\x00-\x1f]{1,512})")


def in_addresses(text: str) -> Iterator[SecretPlace]:
    place = text.find("://")
    while place >= 0:
        found = _USER.match(text, place + 3)
        if found:
            password, at, _ = _until_host(found[1])
            if at and not is_placeholder(password):
                yield SecretPlace(
                    found.start(1),
                    found.start(1) + len(password),
                    "an address with a password in it",
                    _is_in_clear(password),
                )
        place = text.find("://", place + 3)


def _until_host(rest: str) -> tuple[str, str, str]:
    """A password may hold an @; what stands behind the first slash belongs to the path, unless no host came before."""
    authority, slash, path = rest.partition("/")
    if "@" in authority or authority.isdigit() or not slash:
        return authority.rpartition("@")
    password, at, host = path.partition("@")
    return f"{authority}/{password}", at, host


# -- what a value is


_OTHER_PASS = re.compile(r"(?:by|com|over|sur|tres|under)pass$", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"^\$(?:[{(]|\w+$)|^[<{\[(][^<>{}\[\]()]*[>}\])]|^%(?:[sdr(]|\w+%$)|^!(?:vault|ref|sub|getatt|secret|env)\b|^`|\$[{(]|\{\{"
    r"|<[a-z][^<>]*>|\.\.\.|…|^(?:[x*•.#_-]+|none|null|true|false|nil|undefined)$"
    r"|^(?:\.{1,2}/|~/|(?:/[a-z0-9_.-]+){1,9}/?$|[a-z]+://|(?:env|file|vault|ref|sha\d+|arn|secret|op):|@[a-z./~]|\*\w+$)"
    r"|example|placeholder|change[-_ ]?(?:me|it)|your|dummy|sample|redacted|\[masked|replace|insert|todo|fixme|x{4}",
    re.IGNORECASE,
)
# Said of a secret instead of one: how it is given, its type in a schema or a signature.
_NO_VALUE = re.compile(
    r"(?:default|required?|optional|enabled?|disabled?|include|omit|same-origin|prompt|ask|auto|empty|hidden|yes|no"
    r"|str|string|text|bytes?|int|integer|number|bool|boolean|any|object|secretstr)[?!]?",
    re.IGNORECASE,
)
_CODE = re.compile(r"[()\[\]]|^\w+(\.\w+)+$")  # a call, an index, a dotted name
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")  # DB_PASSWORD, of the environment
# my-tls-secret-v2, Bearer: the name of a secret that is kept elsewhere, or of its kind.
_NAMELIKE = re.compile(r"[A-Z]?[a-z]+|[a-z]+\d{0,2}(?:[-_./](?:[a-z]+\d{0,2}|\d{1,2}))+")
_SHORTEST = 4
_CODE_BITS = 3.0  # of entropy per character: what a bare word in a program must have not to be a variable
_ADDRESS_BITS = 2.0


def is_mixed(value: str) -> bool:
    kinds = sum(bool(re.search(kind, value)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return kinds > 1 and _entropy(value) >= _CODE_BITS


def _is_in_clear(value: str) -> bool:
    """A password in an address; shorter ones are mostly made up."""
    return len(value) >= 6 and not value.isdigit() and _entropy(value) >= _ADDRESS_BITS


def is_no_value(value: str) -> bool:
    return is_placeholder(value) or bool(_NO_VALUE.fullmatch(value))


def is_placeholder(value: str) -> bool:
    return bool(_PLACEHOLDER.search(value))


def _entropy(value: str) -> float:
    counts = [value.count(char) for char in set(value)]
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts)


# -- private keys, line by line


_KEY_LINE = re.compile(
    r"(?m)^([+\- ]?[ \t>|]{0,64})([A-Za-z0-9+/=]{16,}|[A-Za-z-]{4,20}: [^\r\n]*)[ \t]*\r?$"
)
_BEGIN = re.compile(r"-----BEGIN ((?:[A-Z0-9]+ )?)PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]+ )?PRIVATE KEY(?: BLOCK)?-----")
_ANY_END = re.compile(r"-----(?:END|BEGIN) ")
_IN_A_LINE = re.compile(r"[A-Za-z0-9+/=\\nr\s:,-]+")
_PUTTY = re.compile(r"(?m)^[+\- ]?Private-Lines: \d+\r?$")


def private_keys(text: str) -> Iterator[SecretPlace]:
    """The lines of a key, each by itself, so that a difference keeps its lines. Of a piece of text that begins within a
    key, the lines before its end."""
    place = 0
    while begin := _BEGIN.search(text, place):
        if begin[1] == "ENCRYPTED ":
            place = begin.end()
            continue
        yield SecretPlace(begin.start(), begin.start(), "a private key")
        end = _END.search(text, begin.end())
        place = end.start() if end else _end_of_body(text, begin.end())
        yield from _key_lines(text, begin.end(), place)
    end = _END.search(text)
    first = _BEGIN.search(text)
    if end and not (first and first.start() < end.start()):
        other = max((one.end() for one in _ANY_END.finditer(text, 0, end.start())), default=0)
        yield from _key_lines(text, other, end.start())
    for putty in _PUTTY.finditer(text):
        yield SecretPlace(putty.start(), putty.start(), "a private key")
        stop = text.find("Private-MAC", putty.end())
        yield from _key_lines(text, putty.end(), stop if stop >= 0 else len(text))


def _end_of_body(text: str, start: int) -> int:
    """Of a key that was cut off: as far as its lines go."""
    found = _IN_A_LINE.match(text, start)
    return found.end() if found else start


def _key_lines(text: str, start: int, stop: int) -> Iterator[SecretPlace]:
    if "\n" not in text[start:stop]:  # on one line, as JSON and variables hold it
        while start < stop and text.startswith(("\\n", "\\r"), start):
            start += 2
        while stop > start and text.startswith("\\n", stop - 2):
            stop -= 2
        if stop > start:
            yield SecretPlace(start, stop, "a private key")
        return
    for line in _KEY_LINE.finditer(text, start, stop):
        yield SecretPlace(*line.span(2), "a private key")
