"""Someone with two stores, of which one has a daemon: a command is run in the same way with each, and compared."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import takeback
from tests.agents.acts import daemons
from tests.agents.talk import until
from tests.sandbox.scenes import give

PROBE = Path(__file__).parent / "probe.py"
SOURCE = Path(takeback.__file__).parents[1]
LONG = 60


class Person:
    """Root or an ordinary user, with a store that has a daemon and one that has none."""

    def __init__(self, directory: Path, python: str, library: Path, user: int) -> None:
        self.directory, self.python, self.library, self.user = directory, python, library, user
        self.rights: tuple[str, ...] = (
            ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups") if user else ()
        )
        self.work = directory / "work"
        self.home = directory / "home"
        for path in (self.work, self.home):
            path.mkdir()
        shutil.copy(PROBE, directory / "probe.py")
        self.give()
        self.daemon: subprocess.Popen[bytes] | None = None

    def give(self) -> None:
        if self.user:
            give(self.directory, self.user)

    def store(self, with_daemon: bool) -> Path:
        return self.directory / ("store-1" if with_daemon else "store-0")

    def words(self, *words: str) -> list[str]:
        code = (
            f"import sys; sys.path[:0] = [{str(self.library)!r}]; sys.argv[0] = 'takeback'; "
            f"from takeback.frontends.agents import client; client._QUICK = {LONG}; "
            "from takeback.frontends.cli.main import main; main()"
        )
        return [self.python, "-I", "-B", "-c", code, *words]

    def environment(self, with_daemon: bool, more: Mapping[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in os.environ}
        own = {
            "HOME": str(self.home),
            "TAKEBACK_STORE": str(self.store(with_daemon)),
            "PROBE_OUT": str(self.out),
        }
        return kept | own | dict(more)

    @property
    def out(self) -> Path:
        return self.work / "seen.json"

    def starts(self) -> None:
        """The daemon and its starter, ready; and each store has found out that there is a sandbox."""
        words = [*self.rights, *daemon_words(self.python, self.library, self.store(True))]
        env = self.environment(True, {})
        self.daemon = subprocess.Popen(
            words, cwd="/", env=env, start_new_session=True, stderr=subprocess.DEVNULL
        )
        until((self.store(True) / "hooks/socket").exists)
        for with_daemon in (False, True):
            done = self.runs(Row("", ""), with_daemon)
            assert done.code == 0, done
        until(lambda: self.runs(Row("", ""), True).seen["sent"])

    def starter(self) -> int:
        assert self.daemon
        (found,) = children(self.daemon.pid)
        return found

    def ends(self) -> None:
        for process in daemons(str(self.directory)):
            os.kill(process, signal.SIGKILL)
        log = self.store(True) / "hooks/log"
        assert not log.exists() or not log.read_text(), log.read_text()
        if self.daemon:
            self.daemon.wait(LONG)

    def begins(self, row: "Row", with_daemon: bool, **more: Any) -> "subprocess.Popen[bytes]":
        self.out.unlink(missing_ok=True)
        command = row.command or (
            sys.executable if not self.user else self.python,
            "-I",
            "-S",
            str(self.directory / "probe.py"),
        )
        words = [*self.rights, *row.around, *self.words("run", *row.options, "--", *command, *row.words)]
        given: dict[str, Any] = {
            "cwd": self.work, "env": self.environment(with_daemon, row.env), "start_new_session": True,
            **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
        }  # fmt: skip
        given |= more
        return subprocess.Popen[bytes](words, **given)

    def runs(self, row: "Row", with_daemon: bool, **more: Any) -> "Found":
        with self.begins(row, with_daemon, **more) as process:
            out, err = process.communicate(b"said" if process.stdin else None, LONG)
        return self.found(process.returncode, out or b"", err or b"", with_daemon)

    def found(self, code: int, out: bytes, err: bytes, with_daemon: bool) -> "Found":
        seen: dict[str, Any] = json.loads(self.out.read_text()) if self.out.exists() else {}
        stores = [str(self.store(with_daemon)), str(self.store(not with_daemon))]
        said = json.loads(plain(json.dumps(seen).encode(), stores))
        return Found(code, plain(out, stores), plain(err, stores), said)


class Row(NamedTuple):
    """How a command is started, and whether the daemon's starter carries it out."""

    name: str
    command: "tuple[str, ...] | str" = ()
    around: tuple[str, ...] = ()  # a program that starts takeback
    options: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    sent: bool = True


class Found(NamedTuple):
    code: int
    out: str
    err: str
    seen: dict[str, Any]


# What a command has to load though its starter was to have loaded everything.
_NOTES = """
carried_out = starter._carried_out

def noted(*wish):
    had = set(sys.modules)
    code = carried_out(*wish)
    with open({loaded!r}, "a") as file:
        print(*sorted(name for name in set(sys.modules) - had if name.startswith("takeback")), file=file)
    return code

starter._carried_out = noted
"""


def daemon_words(python: str, library: Path, store: Path) -> list[str]:
    """A daemon for whose starter a filter is everybody's that all tests have (`tests/unsynced.py`)."""
    start = (
        "import sys; sys.path.insert(0, {root!r}); from takeback.frontends.agents import starter\n"
        f"starter.FIRST, starter._ANSWER = {os.getpid()}, {LONG}\n"
        f"{_NOTES.format(loaded=f'{store}/hooks/loaded')}starter.main()\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(library)!r}); from takeback.frontends.agents import daemon, starter; "
        f"starter._START, starter._ANSWER = {start!r}, {LONG}; daemon.main(sys.argv[1])"
    )
    return [python, "-I", "-B", "-c", code, str(store), "takeback.frontends.agents.daemon"]


def plain(text: bytes, stores: list[str]) -> str:
    said = text.decode("utf-8", "surrogateescape")
    for store in stores:
        said = said.replace(store, "STORE")
    said = re.sub(
        r'"(id|run|key|at|seq|digest|before|mtime|ctime|ino|nlink|size)": ?("[^"]*"|\d+)', r'"\1": ?', said
    )
    said = re.sub(r"(: |apply |show |diff |discard |undo |held )[0-9a-z]{8}\b", r"\1EFFECT", said)
    said = re.sub(r"\d\.\d KB", "SIZE", said)
    return re.sub(r"until \w+ \d+ [\d:]+", "until THEN", said)


def children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(one) for thread in threads for one in (thread / "children").read_text().split()]


def sh(line: str) -> tuple[str, ...]:
    return ("sh", "-c", f'{line}; exec "$@"', "sh")
