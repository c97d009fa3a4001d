"""Patterns of rules: what is written in a file, as a literal that is quickly looked for and an expression that decides.

Texts that are matched are lists joined by `END`, with one more at each end, so that one search covers all of them.
"""

import re

from takeback.policy.rules import Field, Pattern

END = "\0"
WORD = "\x1f"  # between the words of a command
_MAGIC = re.compile(r"[*?\[]")


def joined(texts: "tuple[str, ...] | list[str]") -> str:
    return f"{END}{END.join(texts)}{END}" if texts else ""


def pattern_of(field: str, text: str, root: str, home: str) -> Pattern:
    """`root`: where a relative path begins; empty: it may begin anywhere."""
    if field == Field.PATH:
        return path_pattern(text, root, home)
    if field == Field.COMMAND:
        return command_pattern(text)
    return plain_pattern(text)


def plain_pattern(text: str) -> Pattern:
    """`*` stands for any characters."""
    if not _MAGIC.search(text):
        return Pattern(f"{END}{text}{END}")
    return Pattern(_longest(text), f"{END}{_translated(text, across=True)}{END}")


def path_pattern(text: str, root: str, home: str) -> Pattern:
    """As in a .gitignore: without a slash it means that name at any depth, and a directory means all that is in it."""
    text = text.rstrip("/") or "/"
    if text.startswith("~/") or text == "~":
        text = home + text[1:]
    elif "://" not in text and not text.startswith("/"):
        text = f"{root}/{text.removeprefix('./')}" if "/" in text or text in (".", "**") else f"**/{text}"
        text = text.removesuffix("/.") if text.endswith("/.") else text
    text = text.removesuffix("/**") or "/"
    magic = _MAGIC.search(text)
    fixed = text[: magic.start()] if magic else text
    if text in ("/", "**"):
        return Pattern("", f"{END}[^{END}]", "")
    return Pattern(_longest(text), f"{END}{_translated(text, across=False)}(?:/[^{END}]*)?{END}", fixed)


def command_pattern(text: str) -> Pattern:
    """Word by word from the first; a `*` that stands alone means any words. More words may follow."""
    import shlex

    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    expression = END
    for number, word in enumerate(words):
        if word == "*" and number:
            expression += f"(?:{WORD}[^{WORD}{END}]*)*"
        else:
            expression += (WORD if number else "") + _translated(word, across=True, stop=WORD)
    longest = max((_longest(word) for word in words if word != "*"), key=len, default="")
    return Pattern(longest, f"{expression}(?:{WORD}[^{END}]*)?{END}")


def matches(pattern: Pattern, text: str) -> bool:
    if pattern.literal not in text:
        return False
    return not pattern.expression or re.search(pattern.expression, text, re.DOTALL) is not None


def _longest(text: str) -> str:
    """The longest run of characters that are no wildcards."""
    plain = re.sub(r"\[[^]]*\]", "*", text)
    return max(re.split(r"[*?]+|/\*\*/", plain), key=len).strip("/") if plain else ""


def _translated(text: str, across: bool, stop: str = "") -> str:
    """`across`: a single `*` passes a slash."""
    any_one = f"[^{END}{stop}]" if across else f"[^/{END}]"
    found, at = "", 0
    while at < len(text):
        rest = text[at:]
        if not across and rest.startswith("**/"):
            found += f"(?:[^{END}]*/)?"
            at += 3
        elif rest.startswith("**"):
            found += f"[^{END}{stop}]*"
            at += 2
        elif text[at] == "*":
            found += f"{any_one}*"
            at += 1
        elif text[at] == "?":
            found += any_one
            at += 1
        elif text[at] == "[" and (end := text.find("]", at + 2)) > 0:
            inside = text[at + 1 : end].replace("\\", "\\\\")
            found += f"[{'^' + inside[1:] if inside.startswith('!') else inside}]"
            at = end + 1
        else:
            found += re.escape(text[at])
            at += 1
    return found
