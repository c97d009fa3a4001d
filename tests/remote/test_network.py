"""What is lost, cut and late between a client and its store in PostgreSQL: nothing is recorded or done twice."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import takeback
from examples.office import ROOT
from takeback.storage.postgres.store import PostgresStore
from tests.e2e.conftest import surroundings
from tests.remote import booking
from tests.remote.town import Line, Town, after, in_a_town
from tests.remote.working import worker
from tests.servers.postgres import Postgres
from tests.servers.process import wait_until

pytestmark = [pytest.mark.root, pytest.mark.needs("ip", "iptables", "unshare")]
LONG = 120

HOW: dict[str, Callable[[Line, str], None]] = {
    "request lost": lambda line, word: line.lose_request(word),
    "answer lost": lambda line, word: line.lose_answer(word),
    "cut before": lambda line, word: line.lose_request(word, by="REJECT"),
    "cut after": lambda line, word: line.lose_answer(word, by="REJECT"),
}


def enters(line: Line, key: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "tests.remote.booking", line.url, key]
    return subprocess.Popen(words, cwd=ROOT, env=surroundings(), stdout=subprocess.PIPE, text=True)


def said(process: "subprocess.Popen[str]") -> str:
    return process.communicate(timeout=LONG)[0].strip()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("word", ["intent", "done"])
@pytest.mark.parametrize("how", HOW)
def test_what_is_lost_around_an_append_is_recorded_once_and_done_once(
    postgres: Postgres, swift_path: Path, how: str, word: str
) -> None:
    """At the same time by a program that calls, and by a worker."""

    def story(town: Town) -> None:
        calls, works = town.line(2), town.line(3)
        at_work = worker(works.url)
        for line in (calls, works):
            HOW[how](line, word)
        calling = enters(calls, "called")
        with town.open() as tb:
            run = tb.submit(booking.book, "worked", key="worked")
            assert tb.result(run, LONG) == booking.find("worked")["number"]
        assert said(calling) == str(booking.find("called")["number"])
        for line in (calls, works):
            assert line.lost(), "nothing was lost"
        end(at_work)
        town.entered_once("called", "worked")
        with town.open() as tb:
            assert {one.state.value for one in tb.effects()} == {"done"}, "none was even begun twice"

    in_a_town(postgres, swift_path, story)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("word", ["intent", "done"])
@pytest.mark.parametrize("how", ["request lost", "answer lost"])
def test_what_is_late_by_three_seconds_is_waited_for(
    postgres: Postgres, swift_path: Path, how: str, word: str
) -> None:
    """With the patience that everybody has."""

    def story(town: Town) -> None:
        lines = calls, works = town.line(2, ""), town.line(3, "")
        at_work = worker(works.url)
        for line in lines:
            HOW[how](line, word)
        calling = enters(calls, "called")
        with town.open() as tb:
            run = tb.submit(booking.book, "worked", key="worked")
            for line in lines:
                line.until_something_is_lost()
            after(3)
            for line in lines:
                line.heal()
            assert tb.result(run, LONG) == booking.find("worked")["number"]
        assert said(calling) == str(booking.find("called")["number"])
        end(at_work)
        town.entered_once("called", "worked")

    in_a_town(postgres, swift_path, story)


# As if on another machine: nobody here sees its process.
FAR = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


class TestTakenOver:
    """A worker whose line is away for longer than its lease; another one takes over, and then it is back."""

    def test_between_two_steps_it_is_refused_and_does_nothing(
        self, postgres: Postgres, swift_path: Path
    ) -> None:
        def story(town: Town) -> None:
            town.leases_last(2)
            line = town.line(2)
            first = worker(line.url, FAR, TAKEBACK_MACHINE="far")
            with town.open() as tb:
                run = tb.submit(booking.book_two, "k")
                wait_until(town.waits("k", "far"), "it is between its steps")
                line.cut()
                second = worker(town.url, TAKEBACK_MACHINE="near")
                wait_until(town.waits("k", "near"), "another one has it")
                town.let_pass("k")
                assert tb.result(run, LONG) == booking.find("k-second")["number"]
                line.until_something_is_lost()
                records = tb.store.journal.tally()["records"]
                line.heal()
                assert "was taken over" in told(first)
                assert tb.store.journal.tally()["records"] == records
                assert town.generation(tb, run.id) == 2
            end(first, second)
            town.entered_once("k-first", "k-second")

        in_a_town(postgres, swift_path, story)

    def test_in_the_middle_of_a_call_what_it_did_is_found(self, postgres: Postgres, swift_path: Path) -> None:
        def story(town: Town) -> None:
            town.leases_last(2)
            line = town.line(2)
            first = worker(line.url, FAR, TAKEBACK_MACHINE="far")
            with town.open() as tb:
                run = tb.submit(booking.book_at_leisure, "k")
                wait_until(town.waits("k-call", "far"), "it is in the middle of its call")
                line.cut()
                town.let_pass("k-call")
                wait_until(lambda: booking.entries("k") == 1, "it has entered it")
                second = worker(town.url, TAKEBACK_MACHINE="near")
                assert tb.result(run, LONG) == booking.find("k")["number"]
                line.heal()
                assert "was taken over" in told(first)
            end(first, second)
            town.entered_once("k")

        in_a_town(postgres, swift_path, story)

    def test_with_an_intent_that_it_hears_of_too_late_it_does_not_call(
        self, postgres: Postgres, swift_path: Path
    ) -> None:
        """The intent is recorded, and whoever has the run now has found that nothing came of it, and has called."""

        def story(town: Town) -> None:
            town.leases_last(2)
            line = town.line(2)
            first = worker(line.url, FAR, TAKEBACK_MACHINE="far")
            line.lose_answer("intent")
            with town.open() as tb:
                run = tb.submit(booking.book, "k")
                line.until_something_is_lost()
                line.cut()
                second = worker(town.url, TAKEBACK_MACHINE="near")
                assert tb.result(run, LONG) == booking.find("k")["number"]
                line.heal()
                assert "was taken over" in told(first)
            end(first, second)
            town.entered_once("k")
            with town.open() as tb:
                assert [one.state.value for one in tb.effects()] == ["aborted", "done"]

        in_a_town(postgres, swift_path, story)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("how", "word", "recorded"),
    [
        ("request lost", "intent", []),
        ("answer lost", "intent", ["intended"]),
        ("request lost", "done", ["intended"]),
        ("answer lost", "done", ["done"]),
    ],
)
def test_who_cannot_ask_what_became_of_an_append_is_in_doubt(
    postgres: Postgres, swift_path: Path, how: str, word: str, recorded: list[str]
) -> None:
    """The server is away from then on, for longer than anybody waits. What is not known to be intended is not done."""

    def story(town: Town) -> None:
        line = town.line(2)
        with takeback.open(line.url) as tb, tb.run("enter", on_death="accept") as run:
            impatient(tb)
            HOW[how](line, word)
            with cut_when_something_is_lost(line), pytest.raises(takeback.InDoubt):
                run.call(booking.enter, key="k")
            with town.open() as witness:
                assert [one.state.value for one in witness.effects()] == recorded
            assert booking.entries("k") == (word == "done")
            line.heal()
            assert run.call(booking.enter, key="k") == booking.find("k")
        town.entered_once("k")

    in_a_town(postgres, swift_path, story)


@pytest.mark.parametrize("word", ["intent", "done"])
def test_an_answer_that_alone_is_lost_is_not_waited_for_for_ever(
    postgres: Postgres, swift_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """The server has heard all and says so: for the network nothing is wrong."""
    monkeypatch.setattr("takeback.storage.postgres.connection.SILENCE", 2)

    def story(town: Town) -> None:
        line = town.line(2)
        with takeback.open(line.url) as tb, tb.run("enter") as run:
            line.lose_what_is_said(word)
            assert run.call(booking.enter, key="k") == booking.find("k")
            assert line.lost()
        town.entered_once("k")

    in_a_town(postgres, swift_path, story)


def impatient(tb: takeback.Takeback) -> None:
    assert isinstance(tb.store, PostgresStore)
    tb.store.server.patience = 1


@contextmanager
def cut_when_something_is_lost(line: Line) -> Iterator[None]:
    def watch() -> None:
        line.until_something_is_lost()
        line.cut()

    watching = threading.Thread(target=watch)
    watching.start()
    yield
    watching.join()


def told(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def end(*processes: "subprocess.Popen[str]") -> None:
    for one in processes:
        one.kill()
        one.communicate()
