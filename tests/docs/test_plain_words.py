"""README, documents, messages and help texts in plain English: `docs/style.md` says how, this says what is not.

Documents have none of these words, the parts of docs/reference that are printed from the code included. Sentences of
`src` that a user reads, docstrings and comments still have some: their number may only fall. If you mend some,
lower it; `python -m tests.docs.test_plain_words` prints where they are.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pages import DOCS, ROOT, name_of, pages, plain_prose

TICS = re.compile(
    r"""
      \bwhom?(?:so)?ever\b | \bnobody\b | \bmeanwhile\b | \banew\b | \bas\ ever\b | \bby\ then\b
    | \b(?:is|are|was|were|be|being|been|get|gets)\ told\b | \b(?:tell|tells|telling|told)\ of\b
    | \bma(?:de|ke|kes|king)\ up\ for\b | \b(?:gone|going|goes|go|went)\ on\b(?!\ (?:a|an|the)\b)
    | \bwhat\ (?:is|was)\ (?:there|held)\b | \bin\ the\ hands\ of\b
    | \b(?:put|puts)\ (?:it\ |that\ )?right\b(?!\ (?:after|before|behind|beside)\b)
    """,
    re.IGNORECASE | re.VERBOSE,
)
# A relative clause as a subject: "What the command made stays." A question may begin so.
CLAUSE = re.compile(
    r"(?:^|[.:;] |\| |^- )What (?:is|was|were|are|has|had|can|cannot|it|they|a|an|the|you|others|someone|another)\b"
    r"(?![^.|\n]*\?)",
    re.MULTILINE,
)
HISTORY = (
    "CHANGELOG.md",
    *(f"docs/decisions/{number:04}-" for number in range(1, 29)),
)  # in the words of then
SAYS_WHAT_NOT = DOCS / "style.md"
SOURCE = ROOT / "src" / "takeback"
# People tell; a command shows, a page says. Only counted: in documents some are right ("tell the customer").
# So are names of columns: SQL is no sentence.
TELLING = re.compile(r"\btells?\b|\btold\b", re.IGNORECASE)
SQL = re.compile(r"\b(?:SELECT|select|INSERT|UPDATE|AND|seq)\b|\be\.\w")
# What users of the library read: `api/` and these.
PUBLIC = ("errors.py", "runs/run.py", "runs/boxes/box.py", "adapters/call/action.py", "policy/checks.py")
# The number of sentences in `src` that a user reads and that have such a word. Lower these, never raise them.
LEFT_IN_SOURCE = 2
LEFT_TELLING = 1
LEFT_IN_DOCSTRINGS = 0
# Of any name, also of our own, and comments. Only words that `docs/style.md` has a better one for.
LEFT_IN_COMMENTS = 0


PLAIN = [page for page in pages() if page != SAYS_WHAT_NOT and not name_of(page).startswith(HISTORY)]


@pytest.mark.parametrize("page", PLAIN, ids=name_of)
def test_a_page_is_in_plain_words(page: Path) -> None:
    text = plain_prose(page)
    hits = (*TICS.finditer(text), *CLAUSE.finditer(text))
    found = [(text.count("\n", 0, hit.start()) + 1, hit[0].strip()) for hit in hits]
    assert found == [], "docs/style.md has better words"


def test_the_sentences_of_the_source_get_plainer() -> None:
    said = list(said_in_source())
    _may_only_fall("LEFT_IN_SOURCE", LEFT_IN_SOURCE, in_source(said, TICS, CLAUSE))
    _may_only_fall("LEFT_TELLING", LEFT_TELLING, in_source(said, TELLING))


def test_the_docstrings_of_public_names_get_plainer() -> None:
    _may_only_fall("LEFT_IN_DOCSTRINGS", LEFT_IN_DOCSTRINGS, in_docstrings(TICS, CLAUSE, TELLING))


def test_comments_and_docstrings_stay_plain() -> None:
    _may_only_fall("LEFT_IN_COMMENTS", LEFT_IN_COMMENTS, in_comments(TICS))


def _may_only_fall(name: str, number: int, found: Iterator[str]) -> None:
    left = list(found)
    assert len(left) <= number, f"{left[:5]}: docs/style.md has better words"
    assert len(left) == number, f"Set {name} to {len(left)}, so that it stays so."


class Said(NamedTuple):
    file: Path
    line: int
    sentence: str


def said_in_source() -> Iterator[Said]:
    for file in sorted(SOURCE.rglob("*.py")):
        for line, sentence in sentences(ast.parse(file.read_text())):
            if not SQL.search(sentence):
                yield Said(file, line, sentence)


def in_source(said: Iterable[Said], *tics: re.Pattern[str]) -> Iterator[str]:
    for one in said:
        yield from _having(tics, *one)


def in_docstrings(*tics: re.Pattern[str]) -> Iterator[str]:
    for file in sorted((*(SOURCE / "api").rglob("*.py"), *(SOURCE / name for name in PUBLIC))):
        for line, text in docstrings(ast.parse(file.read_text())):
            yield from _having(tics, file, line, text)


def in_comments(*tics: re.Pattern[str]) -> Iterator[str]:
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text()
        for line, said in (*docstrings(ast.parse(text), own=True), *comments(text)):
            yield from _having(tics, file, line, said)


def _having(tics: tuple[re.Pattern[str], ...], file: Path, line: int, sentence: str) -> Iterator[str]:
    if found := next(filter(None, (tic.search(sentence) for tic in tics)), None):
        yield f"{file.relative_to(ROOT)}:{line}: {found[0].strip()}: {sentence}"


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Lines of comment that stand together are one."""
    for block in re.finditer(r"(?:^ *# ?.*\n)+|  # .*$", text, re.MULTILINE):
        yield (
            text.count("\n", 0, block.start()) + 1,
            " ".join(re.sub(r"^ *#", "", block[0], flags=re.M).split()),
        )


def docstrings(tree: ast.Module, own: bool = False) -> Iterator[tuple[int, str]]:
    """Of classes and functions without a leading underscore, and of their methods; `own`: of all, and of modules."""
    if own:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        for node in ast.walk(tree):
            if said := ast.get_docstring(node) if isinstance(node, (*kinds, ast.Module)) else None:
                yield getattr(node, "lineno", 1), " ".join(re.sub(r"`[^`]*`", "", said).split())
        return
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) and node.name[0] != "_" else ()
        for one in (node, *members):
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and one.name[0] != "_":
                said = re.sub(r"`[^`]*`", "", ast.get_docstring(one) or "")
                yield one.lineno, " ".join(said.split())


def sentences(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every text of several words in the code that is not a docstring, with `…` for the values put into it."""
    nodes = list(ast.walk(tree))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if id(node) in docstrings or id(node) in inner:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        else:
            continue
        if text.count(" ") >= 2:
            yield node.lineno, " ".join(text.split())


def test_a_tic_is_found_and_plain_words_are_not() -> None:
    for text in ("Whoever asks", "It is told so.", "The run went on.", "What is held stays.", "made up for"):
        assert TICS.search(text) or CLAUSE.search(text), text
    for text in (
        "No one asks.",
        "It continues.",
        "What was changed?",
        "It was put right after the call.",
        "on the go",
    ):
        assert not TICS.search(text), text
        assert not CLAUSE.search(text), text


if __name__ == "__main__":
    for part in (
        in_source(said_in_source(), TICS, CLAUSE),
        in_source(said_in_source(), TELLING),
        in_docstrings(TICS, CLAUSE, TELLING),
        in_comments(TICS),
    ):
        print("\n".join(part), end="\n\n")  # noqa: T201
