"""Output for a person or a script: text, colour, JSON, paths and times as seen from the reader's directory."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar, cast

from takeback.errors import InDoubt, TakebackError
from takeback.model.ids import short
from takeback.model.resource import ESCAPED, display

if TYPE_CHECKING:
    from takeback.model.effect import Effect

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_STATE_STYLES = {
    "done": "green",
    "undone": "dim",
    "aborted": "dim",
    "stuck": "red",
    "failed": "red",
    "proposed": "yellow",
    "intended": "yellow",
    "open": "yellow",
    "suspended": "yellow",
    "accepted": "green",
}


class Unprintable(Exception):
    """Standard output took no more; what the command had to do may be done all the same."""


@contextmanager
def printing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unprintable(error.strerror or str(error)) from error


def put(text: str, end: str = "\n") -> None:
    """The one way out for words; secrets in them are masked."""
    put_whole(text if _secrets_shown else _without_secrets(text), end)


def put_whole(text: str, end: str = "\n") -> None:
    """What is masked already, or is no one's but ours."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed by our parent
        raise Unprintable("standard output is closed")
    with printing():
        print(text, end=end)


class Screen(NamedTuple):
    json: bool = False
    quiet: bool = False
    colour: bool = False
    terminal: bool = False
    store: str | None = None  # as --store named it

    @property
    def speaks(self) -> bool:
        return not (self.json or self.quiet)

    def say(self, text: str = "") -> None:
        if self.speaks:
            put(text)

    def remark(self, text: str) -> None:
        """On standard error, beside the answer."""
        if self.speaks:
            warn(f"takeback: {text}")

    def hint(self, text: str) -> None:
        if self.speaks:
            put(
                f"{self.paint('hint:', 'cyan')} {pasteable(at_store(near_text(text, _no_home()), self.store))}"
            )

    def give(self, data: Any) -> None:
        """The answer as JSON, where that was asked for."""
        if self.json:
            put_json(data)

    def paint(self, text: str, style: str) -> str:
        return painted(text, style) if self.colour and style else text

    def id(self, id: str) -> str:
        return self.paint(short(id), "cyan")

    def effect(self, effect: "Effect") -> str:
        """Which, and what it did."""
        return f"{self.id(effect.id)}  {from_here(effect.change.summary)}"

    def state(self, state: str, width: int = 0) -> str:
        return self.paint(state.ljust(width), _STATE_STYLES.get(state, ""))


def screen_for(asks_json: bool, quiet: bool, store: str | None = None) -> Screen:
    terminal = bool(sys.stdout and sys.stdout.isatty())
    return Screen(asks_json, quiet, coloured(sys.stdout) and not asks_json, terminal, store)


_secrets_shown = False  # as --secrets says, for this command
_chosen = "auto"  # as --color says, for this command
_aimed_at = ""  # the store that --store names, for this command


def show_secrets(shown: bool) -> None:
    global _secrets_shown  # noqa: PLW0603 whatever way a word takes to the reader, it is masked
    _secrets_shown = shown


def for_reader(lines: Sequence[str]) -> Sequence[str]:
    """The lines of one text with their secrets masked, unless they are asked for."""
    if _secrets_shown:
        return lines
    from takeback.policy.secrets import masked_lines

    return masked_lines(lines)


def put_json(data: Any) -> None:
    put_whole(json.dumps(without_secrets(data), indent=2))


def without_secrets(data: Any) -> Any:
    """JSON for a reader. What a command said itself stays as it said it, here as without --json."""
    if _secrets_shown:
        return data
    from takeback.policy.secrets import masked_json

    said = cast("dict[str, Any]", data) if isinstance(data, dict) and "stdout" in data else {}
    seen = masked_json(data)
    return (
        seen | {name: said[name] for name in ("stdout", "stderr", "text") if name in said} if said else seen
    )


def _without_secrets(text: str) -> str:
    from takeback.policy.secrets import masked

    if "\033[" not in text:
        return masked(text)
    # A colour may stand within a secret: such a line is shown plain, or in the one colour that it has.
    lines: list[str] = []
    for line in text.split("\n"):
        plain = _colours().sub("", line)
        seen = masked(plain)
        whole = (
            seen != plain
            and line.startswith("\033[")
            and line.endswith("\033[0m")
            and line.count("\033[") == 2
        )
        lines.append(
            line if seen == plain else f"{line[: line.index('m') + 1]}{seen}\033[0m" if whole else seen
        )
    return "\n".join(lines)


@cache
def _colours() -> "re.Pattern[str]":
    return re.compile(r"\033\[[0-9;]*m")


def choose_colour(when: str) -> None:
    global _chosen  # noqa: PLW0603 an error must know it before the options are understood
    _chosen = when


def aim(store: str) -> None:
    global _aimed_at  # noqa: PLW0603 sentences are made far from where the options are known
    _aimed_at = store


def coloured(stream: TextIO | None) -> bool:
    """Whether to paint on this stream: as --color says, else as the environment says, else on a terminal only."""
    if _chosen in ("always", "never"):
        return _chosen == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return bool(stream and stream.isatty()) and os.environ.get("TERM") != "dumb"


def painted(text: str, style: str) -> str:
    return f"\033[{_STYLES[style]}m{text}\033[0m"


def at_store(hint: str, store: str | None) -> str:
    """The commands in a hint, for the store that --store named."""
    if not store or "`takeback " not in hint or "`takeback --store " in hint:
        return hint
    return hint.replace("`takeback ", f"`takeback --store {quoted(store)} ")


def pasteable(text: str) -> str:
    """The commands in a sentence as they work from here: about the same store, by the same program."""
    if "`takeback " not in text:
        return text
    text, program = at_store(text, _aimed_at), _program()
    return text if program == _NAME else text.replace("`takeback ", f"`{quoted(program)} ")


def _program() -> str:
    """As it was called by a path, in a checkout that is not on PATH; else by its name."""
    called = sys.argv[0] if sys.argv else ""
    if os.path.basename(called) != _NAME or not os.path.isfile(called):
        return _NAME
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = os.path.join(directory, _NAME)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return _NAME if os.path.samefile(found, called) else called
    return called


def quoted(word: str) -> str:
    """As it can be pasted into a shell, whatever bytes it has."""
    import shlex

    if word.isprintable():
        return shlex.quote(word)
    plain = "".join(f"\\{c}" if c in "\\'" else c for c in word)
    escaped = "".join(
        c if c.isprintable() else "".join(f"\\x{byte:02x}" for byte in os.fsencode(c)) for c in plain
    )
    return f"$'{escaped}'"


def answered(question: str, meanings: Mapping[str, str], otherwise: str) -> str:
    """The choice of a person at the terminal: one of `meanings`, by what they may type. `otherwise` is what Enter and
    the end of input mean; the question says so."""
    while True:
        sys.stderr.write(f"{question} ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        typed = line.strip().lower()
        if not typed:
            if not line:
                sys.stderr.write("\n")
            return otherwise
        if typed in meanings:
            return meanings[typed]
        warn(f"Please answer {_any_of(meanings)}.")


def _any_of(meanings: Mapping[str, str]) -> str:
    words: dict[str, list[str]] = {}
    for typed, meaning in meanings.items():
        words.setdefault(meaning, []).append(typed)
    told = [f"{ways[0]} ({ways[-1]})" if len(ways) > 1 else ways[0] for ways in words.values()]
    return " or ".join((", ".join(told[:-1]), told[-1])) if len(told) > 1 else told[0]


_NAME = "takeback"
_LABELS = {"error:": "red", "hint:": "cyan"}


def warn(text: str, whole: bool = False) -> None:
    """For a person, beside the answer. `error:` and `hint:` look the same everywhere, and paths begin in the current
    directory, unless they are to be left `whole`; never with ~, because a command must mean the same when it is pasted.
    A terminal that is gone changes nothing of what was done."""

    text = pasteable(text if whole else near_text(text, _no_home()))
    text = text if _secrets_shown else _without_secrets(text)
    label, blank, rest = text.partition(" ")
    if label in _LABELS and coloured(sys.stderr):
        text = f"{painted(label, _LABELS[label])}{blank}{rest}"
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def complain(error: TakebackError, as_json: bool) -> None:
    if as_json:
        put_json({"error": error_json(error)})
        return
    warn(f"error: {clean(str(error))}")
    if error.hint:
        warn(f"hint: {clean(error.hint)}")


def error_json(error: TakebackError) -> dict[str, Any]:
    told: dict[str, Any] = {
        "type": type(error).__name__,
        "message": str(error),
        "hint": error.hint,
        "exit_code": error.exit_code,
    }
    if error.effect:
        told["effect"] = error.effect
    if isinstance(error, InDoubt) and error.others:
        told["others"] = list(error.others)
    return told


def clean(text: str) -> str:
    """In one line, without secrets and without control characters: a file name must not be able to paint on someone's
    terminal. Masked here too, because what is cut afterwards is not recognised any more."""
    text = text if _secrets_shown else _without_secrets(text)
    return text if text.isprintable() else "".join(_visible(c) for c in text)


def clean_line(line: bytes, tabs: bool = True) -> str:
    """A line of someone's file, for a terminal."""
    text = line.decode("utf-8", "surrogateescape")
    return "".join(c if c == "\t" and tabs else _visible(c) for c in text)


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return ascii(character)[1:-1]


# Words for numbers.


def seconds_in_words(seconds: int) -> str:
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size and seconds % size == 0:
            return counted(seconds // size, word)
    return counted(seconds, "second")


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(names: Sequence[str], most: int = 5, sign: str = ", ") -> str:
    """The first of them, and how many more there are."""
    more = f"{sign.rstrip(', ')} and {len(names) - most:,} more" if len(names) > most else ""
    return sign.join(names[:most]) + more


def say_first(say: Callable[[str], None], lines: Sequence[str], most: int, indent: str = "") -> None:
    """A line for each of the first, and how many more there are."""
    for line in lines[:most]:
        say(indent + line)
    if len(lines) > most:
        say(f"{indent}and {len(lines) - most:,} more")


def took(since: float) -> str:
    """`since` is of time.perf_counter()."""
    milliseconds = (time.perf_counter() - since) * 1000
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def local_time(at: int, now: int) -> str:
    """As short as it can be said: today by the clock, this year without the year. Microseconds since 1970; ? for 0,
    because the record that would tell is damaged."""
    if not at:
        return "?"
    then, today = time.localtime(at // 1_000_000), time.localtime(now // 1_000_000)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M:%S", then)
    return time.strftime("%b %d %H:%M" if then.tm_year == today.tm_year else "%Y-%m-%d", then)


_T = TypeVar("_T")
_FOLDED_FROM = 3  # so many paths in one directory become one line
_FILE = "sqlite:///"  # before the path of a database
_WEEK = 7 * 86400 * 1_000_000


class Here(NamedTuple):
    directory: str
    home: str


def here() -> Here:
    try:
        directory = os.getcwd()
    except FileNotFoundError:
        directory = ""
    return Here(directory, os.environ.get("HOME", "").rstrip("/"))


def _no_home() -> Here:
    """For commands: a path with ~ would not mean the same in quotes."""
    return here()._replace(home="")


def near(path: str, place: Here) -> str:
    """Relative below the current directory, from ~ below the home directory, else as it is. Of a database in a file
    only the path is shown."""
    if path.startswith(ESCAPED):
        return ESCAPED + near(path[len(ESCAPED) :], place)
    if path.startswith(f"{_FILE}/"):
        nearer = near(path[len(_FILE) :], place)
        return path if nearer.startswith("/") else nearer
    for root, sign in ((place.directory, "."), (place.home, "~")):
        if len(root) > 1 and path == root:
            return sign
        if len(root) > 1 and path.startswith(f"{root}/"):
            rest = path[len(root) + 1 :]
            return rest if sign == "." else f"~/{rest}"
    return path


def shown(resource: str, place: Here) -> str:
    return near(clean(display(resource)), place)


def near_text(text: str, place: Here) -> str:
    """A sentence with the paths in it made near. Only words that begin with the directory are touched."""
    if len(place.directory) > 1:
        text = text.replace(f"{_FILE}{place.directory}/", _FILE)
    for root, sign in ((place.directory, ""), (place.home, "~/")):
        if len(root) > 1 and f"{root}/" in text:
            pieces = text.split(f"{root}/")
            text = pieces[0] + "".join(
                (sign if before[-1:] in ("", " ", "'", '"', "(", ":", ",") else f"{root}/") + after
                for before, after in pairwise(pieces)
            )
    return text


def from_here(text: str) -> str:
    """A line for the reader: printable, its paths relative to the current directory."""
    return near_text(clean(text), here())


def nearest_first(items: Sequence[_T], path_of: Callable[[_T], str], place: Here) -> list[_T]:
    """What lies below the current directory comes first; caches and the like after it."""
    below = f"{place.directory}/"
    return sorted(items, key=lambda one: not path_of(one).removeprefix(ESCAPED).startswith(below))


def folded(paths: Iterable[str], most: int, place: Here) -> list[str]:
    """Lines for at most `most` paths and directories; a directory stands for what is in it where there is too much."""
    shown = [near(path, place) for path in nearest_first(list(paths), str, place)]
    if len(shown) <= most:
        return shown
    groups: dict[str, list[str]] = {}
    for path in shown:
        groups.setdefault(_top(path), []).append(path)
    counted: list[tuple[str, int]] = []
    for top, members in groups.items():
        if len(members) >= _FOLDED_FROM:
            counted.append((f"{top}/ ({len(members):,} paths)", len(members)))
        else:
            counted += [(path, 1) for path in members]
    lines = [line for line, _ in counted[:most]]
    left = sum(count for _, count in counted[most:])
    return [*lines, f"and {left:,} more"] if left else lines


def _top(path: str) -> str:
    """The directory that stands for a path: the first one below the reader, the second one elsewhere."""
    path = path.removeprefix(ESCAPED)
    depth = 1 if not path.startswith(("/", "~")) else 3 if path.startswith("/") else 2
    parts = path.split("/")
    return "/".join(parts[:depth]) if len(parts) > depth else path


def ago(at: int, now: int) -> str:
    """Microseconds since 1970; local dates from a week on. ? for 0, because the record that would tell is damaged."""
    if not at:
        return "?"
    seconds = max(0, (now - at) // 1_000_000)
    if seconds < 5:
        return "just now"
    for size, unit, word in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < size:
            return f"{seconds // unit} {word} ago"
    if now - at < _WEEK:
        days = seconds // 86400
        return f"{days} day{'' if days == 1 else 's'} ago"
    return _day(at, now)


def when(at: int, now: int) -> str:
    """How long ago, and by the clock; older than a week only by the clock."""
    if not at or now - at >= _WEEK:
        return local_time(at, now)
    return f"{ago(at, now)} ({local_time(at, now)})"


def ahead(at: int, now: int) -> str:
    seconds = max(0, (at - now) // 1_000_000)
    for size, unit, word in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < size:
            return f"in {seconds // unit} {word}"
    days = round(seconds / 86400)
    return f"in {days} day{'' if days == 1 else 's'} ({_day(at, now)})"


def _day(at: int, now: int) -> str:
    then, today = time.localtime(at // 1_000_000), time.localtime(now // 1_000_000)
    return time.strftime("%b %d" if then.tm_year == today.tm_year else "%Y-%m-%d", then)
