"""Does a line hold a secret in clear? A small set of rules: well-known tokens, and passwords written out.

It errs towards silence where a value is a reference or a placeholder, and it never repeats what it found.
"""

import math
import re
from collections.abc import Iterable
from typing import NamedTuple


class Found(NamedTuple):
    line: int
    kind: str  # for a person; never the secret itself


_TOKENS: tuple[tuple[str, str], ...] = (
    ("a private key", r"-----BEGIN (?:[A-Z0-9]+ )?(?<!ENCRYPTED )PRIVATE KEY(?: BLOCK)?-----"),
    ("an AWS access key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{30,})"),
    ("a GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
    ("a Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}|hooks\.slack\.com/services/T\w{6,}/B\w{6,}/\w{20,}"),
    ("a Stripe key", r"\b[rs]k_live_[A-Za-z0-9]{16,}|\bwhsec_[A-Za-z0-9]{24,}"),
    ("an Anthropic key", r"\bsk-ant-[A-Za-z0-9_-]{20,}"),
    ("an OpenAI key", r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    ("a Google key", r"\bAIza[A-Za-z0-9_-]{35}"),
    ("an npm token", r"\bnpm_[A-Za-z0-9]{36}"),
    ("a PyPI token", r"\bpypi-AgE[A-Za-z0-9_-]{50,}"),
)
_WORDS = r"pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|(?:api|access|secret|private|auth|account)[_-]?key"
_ASSIGNED = re.compile(
    rf"(?i:(?<![a-z])(?:\w*[_.-])?(?:[a-z]*(?:{_WORDS})))[\"']?\s*(?:=>|:=|[:=])\s*"
    r"(?:(?P<quote>[\"'])(?P<quoted>(?:(?!(?P=quote)).)+)(?P=quote)|(?P<bare>[^\s\"'#,;]+)\s*(?:[#;].*)?$)"
)
_IN_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"']*:(?P<value>[^\s/@\"']+)@", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"^[$<{\[%!(]|\$[{(]|\{\{|<[^>]+>|\.\.\.|^(?:[x*•.#_-]+|none|null|true|false|nil|undefined)$"
    r"|^(?:\.{0,2}/|~/|[a-z]+://|(?:env|file|vault|ref|sha\d+|arn|secret|op):)"
    r"|example|placeholder|change[-_ ]?(?:me|it)|your|dummy|sample|redacted|replace|insert|todo|fixme|x{4}",
    re.IGNORECASE,
)
_QUOTED_BITS = 2.5  # of entropy per character; "password" itself has 2.75
_BARE_BITS = 3.0  # without quotes it may be code or a name


def first_secret(lines: Iterable[bytes]) -> Found | None:
    """The first secret and its line; lines are bytes, so that any file can be looked at."""
    patterns = [(kind, re.compile(pattern)) for kind, pattern in _TOKENS]
    number = 1
    for raw in lines:
        kind = _kind(raw.decode("utf-8", "replace"), patterns)
        if kind:
            return Found(number, kind)
        number += raw.endswith(b"\n")
    return None


def _kind(line: str, patterns: list[tuple[str, re.Pattern[str]]]) -> str:
    for kind, pattern in patterns:
        if any(not _is_placeholder(found.group()) for found in pattern.finditer(line)):
            return kind
    for found in _ASSIGNED.finditer(line):
        if found["quoted"] is not None and _looks_secret(found["quoted"], _QUOTED_BITS, mixed=False):
            return "a password or key written out"
        if found["bare"] is not None and _looks_secret(found["bare"], _BARE_BITS, mixed=True):
            return "a password or key written out"
    if any(_looks_secret(found["value"], 2.0, mixed=False) for found in _IN_ADDRESS.finditer(line)):
        return "an address with a password in it"
    return ""


def _looks_secret(value: str, bits: float, mixed: bool) -> bool:
    if len(value) < 6 or " " in value or _is_placeholder(value):
        return False
    kinds = sum(bool(re.search(kind, value)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    if mixed and (kinds < 2 or re.search(r"[()\[\]]|^\w+(\.\w+)+$", value)):
        return False
    return bool(kinds) and not value.isdigit() and _entropy(value) >= bits


def _is_placeholder(value: str) -> bool:
    return bool(_PLACEHOLDER.search(value.removeprefix("-----BEGIN ")))


def _entropy(value: str) -> float:
    counts = [value.count(char) for char in set(value)]
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
