"""A network that nobody else is on: a server of PostgreSQL with a store, and lines to it that lose what they shall.

Each client has a line of its own: an address of the loopback interface. What is to be lost is known by what stands in
the packet, so that it is the very message that was meant, and not one that came a moment before.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import takeback
from tests.calls.killing import alone
from tests.calls.tracer import Tell
from tests.remote import booking
from tests.servers.postgres import Postgres
from tests.servers.process import wait_until

_CLONE_NEWNET = 0x40000000
# So that a lost packet is noticed soon; by default it takes fifteen seconds.
SOON = "tcp_user_timeout=1500&connect_timeout=2"


class Line(NamedTuple):
    """To the server, for one client."""

    url: str
    host: str
    port: int

    def to(self) -> tuple[str, ...]:
        return "-p", "tcp", "-d", self.host, "--dport", str(self.port)

    def back(self) -> tuple[str, ...]:
        return "-p", "tcp", "-s", self.host, "--sport", str(self.port)

    def lose_request(self, *words: str, by: str = "DROP") -> None:
        """The append with these words; and whatever else that connection says or hears from then on. By "REJECT" it is
        cut, so that the client knows at once that it has lost the connection."""
        self._mark_who_says(words)
        _rule(*self.to(), *self._marked(), "-j", *_end(by))
        _rule(*self.back(), *self._marked(), "-j", "DROP")

    def lose_answer(self, *words: str, by: str = "DROP") -> None:
        """That of the append with these words, which arrives; and whatever else comes from there. By "REJECT" the
        connection is cut when the client asks where the answer is."""
        if by == "REJECT":
            _rule(*self.to(), *self._marked(), "-j", *_end(by))
        self._mark_who_says(words)
        _rule(*self.back(), *self._marked(), "-j", "DROP")

    def lose_what_is_said(self, *words: str) -> None:
        """The same, but that the append was heard is told: what is lost is only the answer itself, as where a network
        does not pass on what is large. To the client all is well, and the server is busy."""
        self._mark_who_says(words)
        _rule(*self.back(), *self._marked(), "-m", "length", "--length", "60:65535", "-j", "DROP")

    def _mark_who_says(self, words: tuple[str, ...]) -> None:
        """The first connection that says this, and no other."""
        said = [("-m", "string", "--algo", "bm", "--string", one) for one in ("takeback_", *words)]
        once = ("-m", "limit", "--limit", "1/day", "--limit-burst", "1")
        every = (word for one in said for word in one)
        _rule(*self.to(), *every, *once, "-j", "CONNMARK", "--set-mark", self._mark())

    def _mark(self) -> str:
        return f"0x{self.host.rpartition('.')[2]}"

    def _marked(self) -> tuple[str, ...]:
        return "-m", "connmark", "--mark", self._mark()

    def cut(self) -> None:
        """Nothing gets through any more, and nobody is told."""
        for way in (self.to(), self.back()):
            _rule(*way, "-j", "DROP", first=True)

    def lost(self) -> int:
        """How many packets were."""
        return sum(count for target, count in _counts(self.host) if target in ("DROP", "REJECT"))

    def until_something_is_lost(self) -> None:
        wait_until(lambda: self.lost() > 0, "something was lost")

    def heal(self) -> None:
        listed = subprocess.run(["iptables-save"], check=True, capture_output=True, text=True).stdout
        for line in listed.splitlines():
            if line.startswith("-A ") and f" {self.host}/32 " in line:
                _do("iptables", "-D", *shlex.split(line)[1:])


def _end(by: str) -> Sequence[str]:
    return (by, "--reject-with", "tcp-reset") if by == "REJECT" else (by,)


def _rule(*words: str, first: bool = False) -> None:
    _do("iptables", "-w", "-I" if first else "-A", "INPUT", *words)


def _counts(host: str) -> list[tuple[str, int]]:
    told = subprocess.run(
        ["iptables", "-w", "-nvxL", "INPUT"], check=True, capture_output=True, text=True
    ).stdout
    rows = [line.split() for line in told.splitlines()[2:] if host in line.split()]
    return [(row[2], int(row[0])) for row in rows]


def _do(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


class Town:
    def __init__(self, postgres: Postgres, place: Path) -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        _do("ip", "link", "set", "lo", "up")
        self._directory = postgres.directory.with_name(f"town-{os.getpid()}")
        self.server = Postgres(
            postgres.programs, self._directory, postgres.template, {"listen_addresses": "*"}
        )
        self.server.start()
        self.place = place
        os.environ["GATES"] = str(place)
        booking.begin(place / "ledger.db")
        self.url = self.server.url()
        takeback.open(self.url).close()

    def line(self, number: int, options: str = SOON) -> Line:
        host = f"127.0.0.{number}"
        return Line(f"{self.url.replace('127.0.0.1', host)}?{options}", host, self.server.port)

    def open(self) -> takeback.Takeback:
        """As someone whose line is never disturbed."""
        return takeback.open(self.url, recover=False)

    def leases_last(self, seconds: int) -> None:
        """Those of whoever opens the store from now on."""
        with self.open() as tb:
            tb.store.keep_settings({"lease_seconds": seconds})

    def generation(self, tb: takeback.Takeback, run: str) -> int:
        lease = tb.store.leases.holder(run)
        assert lease
        return lease.generation

    def waits(self, gate: str, machine: str = "") -> Callable[[], bool]:
        return (self.place / f"{gate}-{machine}-waits").exists

    def let_pass(self, gate: str) -> None:
        (self.place / gate).touch()

    def entered_once(self, *keys: str) -> None:
        counts = {key: booking.entries(key) for key in keys}
        assert counts == dict.fromkeys(keys, 1), counts
        with self.open() as tb:
            assert sorted(one.key for one in tb.effects() if one.state == "done") == sorted(keys)
            assert not [one for one in tb.effects() if one.state not in ("done", "aborted")]
            assert tb.verify().sound

    def close(self) -> None:
        self.server.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


def in_a_town(postgres: Postgres, place: Path, story: Callable[[Town], None]) -> None:
    """In a process of its own, which takes its network with it."""

    def work(tell: Tell) -> None:
        town = Town(postgres, place)
        try:
            story(town)
        finally:
            town.close()

    alone(work)


def after(seconds: float) -> None:
    """As long as the trouble lasts."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, "the time is over")
