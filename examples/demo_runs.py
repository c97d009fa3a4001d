"""Payments that happen once, for real: a bank in a process of its own, agents that are killed, fail and are refused.
Every claim is re-read from the bank's ledger first.

Run it with `make demo-runs`, or `python -m examples.demo_runs` in a checkout. `--kills 1000` kills more; with 0 there
are only the four scenarios.
"""

import argparse
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import takeback
from examples import payments
from examples.office import ROOT, BankOffice

# The agent, except that it dies as soon as the bank has answered: the payment is made, and nobody wrote that down.
CRASHING_AGENT = """
import os, signal, sys, takeback
from examples import payments
ask = payments.ask
def ask_and_die(path, body=None, *more):
    answer = ask(path, body, *more)
    if body:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
payments.ask = ask_and_die
with takeback.open(sys.argv[1]) as tb, tb.run("order 2", agent="crashing", on_death="accept") as run:
    run.call(payments.pay, "anna", "shop", 400, key="order-2")
"""


class Story:
    def __init__(self, place: Path, bank: BankOffice) -> None:
        self.place, self.bank = place, bank
        self.store = str(place / "store")
        self.false = 0
        self._seen = 0

    def chapter(self, title: str) -> None:
        print(f"\n{title}")

    def say(self, text: str) -> None:
        print(f"  {text}")

    def claim(self, text: str, holds: bool) -> None:
        """Printed as true only if it is."""
        print(f"  {'✔' if holds else '✘ NOT TRUE:'} {text}", flush=True)
        self.false += not holds

    def ledger(self) -> list[dict[str, Any]]:
        """As the bank has it now; what is new since the last time is shown."""
        rows = self.bank.ledger()
        for row in rows[self._seen :]:
            what = f"  gives back no. {row['reverses']}" if row["reverses"] else ""
            print(
                f"    ledger  no. {row['id']}  {row['source']} → {row['target']}  {row['cents']} cents{what}"
            )
        if len(rows) == self._seen:
            print("    ledger  nothing new")
        self._seen = len(rows)
        return rows

    def balance(self, name: str) -> int:
        return int(payments.ask(f"/accounts/{name}")["cents"])


def clean(story: Story) -> None:
    story.chapter("1. A clean run: one call, one payment.")
    with takeback.open(story.store) as tb:
        with tb.run("order 1", agent="shopper") as run:
            receipt = run.call(payments.pay, "anna", "shop", 300, key="order-1")
        (effect,) = tb.effects()
    rows = story.ledger()
    story.claim("the ledger has it, as the receipt says", rows[-1] == receipt and receipt["cents"] == 300)
    story.claim("the journal has it, with a way back", effect.state == "done" and effect.remedy is not None)


def killed(story: Story) -> None:
    story.chapter(
        "2. kill -9 after the bank has acted and before anybody wrote it down; then the agent is started again."
    )
    dead = subprocess.run([sys.executable, "-c", CRASHING_AGENT, story.store], cwd=ROOT, check=False)
    story.claim("the agent was killed", dead.returncode == -signal.SIGKILL)
    rows = story.ledger()
    with takeback.open(story.store) as tb:
        effect = tb.effects()[-1]
    story.claim("the bank has paid", len(paid(rows, "order-2")) == 1)
    story.claim("the journal knows only that it was about to be paid", effect.state == "intended")
    with takeback.open(story.store) as tb:
        for settled in tb.recover():
            story.say(f"recovered, by asking the bank: {settled.summary}: {settled.outcome}")
        with tb.run("order 2 again", agent="shopper") as run:
            receipt = run.call(payments.pay, "anna", "shop", 400, key="order-2")
    rows = story.ledger()
    story.claim("the retry has the lost receipt", [receipt] == paid(rows, "order-2"))
    story.claim("it was paid once", len(paid(rows, "order-2")) == 1)


def refused(story: Story) -> None:
    story.chapter("3. A precondition does not hold any more: nothing fires.")
    before = story.bank.ledger()
    with takeback.open(story.store) as tb:
        known = len(tb.effects())
        try:
            with tb.run("order 3", agent="shopper") as run:
                run.call(payments.pay, "poor", "shop", 300, key="order-3")
            story.claim("it was refused", False)
        except takeback.PreconditionFailed as error:
            story.say(f"refused: {error}")
        story.claim("nothing was even begun", len(tb.effects()) == known)
    story.claim("the ledger is as it was", story.ledger() == before)


def rolled_back(story: Story) -> None:
    story.chapter("4. Verification finds that the bank did something else: the whole run is taken back.")
    anna, shop = story.balance("anna"), story.balance("shop")
    with takeback.open(story.store) as tb:
        try:
            with tb.run("order 4", agent="shopper") as run:
                run.call(payments.pay, "anna", "shop", 200, key="order-4-goods")
                story.bank.misbehave("wrong")
                run.call(payments.pay, "anna", "shop", 50, key="order-4-postage")
            story.claim("it was noticed", False)
        except takeback.VerifyFailed as error:
            story.say(f"noticed: {error}")
        states = [one.state for one in tb.runs() if one.name == "order 4"]
        story.claim("the run says that it was undone", states == ["undone"])
    rows = story.ledger()
    goods, postage = paid(rows, "order-4-goods"), paid(rows, "order-4-postage")
    reversals = [row["reverses"] for row in rows if row["reverses"]]
    story.claim("both were given back, the later one first", reversals == [postage[0]["id"], goods[0]["id"]])
    story.claim("everybody has what they had", (story.balance("anna"), story.balance("shop")) == (anna, shop))


def paid(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["key"] == key]


# As it is written by hand: a status in a database of one's own, and a call; one comes first.


def status_first(place: Path, order: str) -> None:
    with closing(sqlite3.connect(place / "orders.db", isolation_level=None)) as orders:
        if orders.execute("SELECT 1 FROM orders WHERE id = ?", (order,)).fetchone():
            return
        orders.execute("INSERT INTO orders VALUES (?, 'paid')", (order,))
        payments.ask("/transfers", {"source": "anna", "target": "shop", "cents": 1}, order)


def call_first(place: Path, order: str) -> None:
    with closing(sqlite3.connect(place / "orders.db", isolation_level=None)) as orders:
        if orders.execute("SELECT 1 FROM orders WHERE id = ?", (order,)).fetchone():
            return
        payments.ask("/transfers", {"source": "anna", "target": "shop", "cents": 1}, order)
        orders.execute("INSERT INTO orders VALUES (?, 'paid')", (order,))


def ours(place: Path, order: str) -> None:
    with takeback.open(str(place / "store")) as tb, tb.run(order, agent="shopper", on_death="accept") as run:
        run.call(payments.pay, "anna", "shop", 1, key=order)


WAYS: dict[str, Callable[[Path, str], None]] = {
    "status, then the call": status_first,
    "the call, then status": call_first,
    "takeback": ours,
}


def wrong_order(story: Story, many: int) -> None:
    story.chapter(
        f"5. {many} payments, each by a process that is killed at a random moment and started again; the same moments."
    )
    with closing(sqlite3.connect(story.place / "orders.db")) as orders:
        orders.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT)")
    chance = Random()
    moments = [chance.random() for _ in range(many)]
    print(f"    {'':24}{'killed':>8}{'paid twice':>12}{'never paid':>12}")
    counts: dict[str, tuple[int, int, int]] = {}
    for name, way in WAYS.items():
        takes = min(_timed(way, story.place, f"{way.__name__}-before-{number}") for number in range(5))
        kills = 0
        for number, moment in enumerate(moments):
            order = f"{way.__name__}-{number}"
            kills += _in_a_child(way, story.place, order, moment * takes)
            _in_a_child(way, story.place, order)
        rows = story.bank.ledger()
        times = [len(paid(rows, f"{way.__name__}-{number}")) for number in range(many)]
        counts[name] = kills, sum(one > 1 for one in times), times.count(0)
        print(f"    {name:24}{kills:>8}{counts[name][1]:>12}{counts[name][2]:>12}", flush=True)
    story.claim("status first loses payments", counts["status, then the call"][2] > 0)
    story.claim("the call first pays twice", counts["the call, then status"][1] > 0)
    story.claim("takeback: 0 and 0", counts["takeback"][1:] == (0, 0))
    story.claim("each was killed more often than not", all(one[0] > many / 2 for one in counts.values()))


def _timed(way: Callable[[Path, str], None], place: Path, order: str) -> float:
    began = time.monotonic()
    _in_a_child(way, place, order)
    return time.monotonic() - began


def _in_a_child(
    way: Callable[[Path, str], None], place: Path, order: str, killed_after: float | None = None
) -> bool:
    """Whether it was killed."""
    child = os.fork()
    if not child:
        status = 1
        try:
            way(place, order)
            status = 0
        finally:
            os._exit(status)
    if killed_after is not None:
        time.sleep(killed_after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"{order} ended with an error.")
    return os.WIFSIGNALED(status)


@contextmanager
def bank_in(place: Path) -> Iterator[BankOffice]:
    office = BankOffice(place)
    os.environ["BANK_URL"] = office.url
    try:
        yield office
    finally:
        office.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    kills: int = parser.parse_args().kills
    started = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="takeback-demo-"))
    with bank_in(place) as bank:
        print(f"Everything happens in {place}; the bank answers at {bank.url}")
        story = Story(place, bank)
        bank.fund("anna", 100_000)
        bank.fund("poor", 100)
        story.ledger()
        clean(story)
        killed(story)
        refused(story)
        rolled_back(story)
        if kills:
            wrong_order(story, kills)
        story.chapter("Afterwards")
        with takeback.open(story.store) as tb:
            story.claim("the store is sound: every record was read again", tb.verify().sound)
            story.claim("nothing is in doubt", not tb.effects(state=("intended", "stuck")))
    print(f"  {time.monotonic() - started:.1f} s in all. The store stays: takeback --store {story.store} log")
    if story.false:
        print(f"\n{story.false} claims did not hold.", file=sys.stderr)
    return 1 if story.false else 0


if __name__ == "__main__":
    sys.exit(main())
