"""Someone who knows only the guides approves a risky migration on a phone, sees it fail its check, watches it taken
back, and exports the evidence. One story: each step needs those before it."""

import json
import os
import re
import sqlite3
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import takeback
from takeback.api import Takeback
from takeback.frontends.cli.main import main
from takeback.frontends.console.accounts import Accounts
from takeback.frontends.console.serve import Served, ServingWishes, serve
from takeback.frontends.console.visitor import Role
from tests.console.conftest import PASSWORD

PHONE = {"width": 390, "height": 844}
POLICY = """
[[rule]]
name = "migrations are approved"
match = {verb = ["drop", "truncate", "alter"]}
then = "ask"
why = "Others read these tables."
asks = {people = 1, within = "4h", challenge = true}
"""
BARE = ["/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3", "-I", "-S", "-B"]


class Story(NamedTuple):
    place: Path
    tb: Takeback
    page: Any
    address: str
    agent: "subprocess.Popen[str]"
    seen: dict[str, str]  # what a step found, for the next ones

    @property
    def shop(self) -> Path:
        return self.place / "shop" / "shop.db"

    def customers(self) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.shop) as db:
            return db.execute("SELECT * FROM customers").fetchall()

    def fits_the_phone(self) -> bool:
        return self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    def picture(self, name: str) -> None:
        if to := os.environ.get("PICTURES"):
            self.page.screenshot(path=f"{to}/{name}.png")


@pytest.fixture
def story(tmp_path: Path, chromium: Any) -> Iterator[Story]:
    """A shop with a policy, a console for a team, a phone, and an agent that has begun."""
    place = tmp_path
    (place / "shop").mkdir()
    (place / "shop" / "takeback.toml").write_text(POLICY)
    with sqlite3.connect(place / "shop" / "shop.db") as db:
        db.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, email TEXT)")
        db.execute("INSERT INTO customers VALUES (1, 'Ann', 'ann@example.org'), (2, 'Bo', 'bo@example.org')")
    Accounts(str(place / "accounts.json")).put("bea", Role.APPROVER, PASSWORD)
    tb = takeback.open(place / "store", recover=False)
    told: list[Served] = []
    there = threading.Event()

    def tell(served: Served) -> None:
        told.append(served)
        there.set()

    wishes = ServingWishes(accounts=str(place / "accounts.json"))
    server = threading.Thread(target=serve, args=(tb, wishes, tell))
    server.start()
    assert there.wait(20)
    agent = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.console.migrator",
            str(place / "store"),
            str(place / "shop" / "shop.db"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    phone = chromium.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    page = phone.new_page()
    page.set_default_timeout(15_000)
    yield Story(place, tb, page, told[0].address, agent, {})
    phone.close()
    agent.kill()
    agent.communicate()
    told[0].end()
    server.join(20)
    tb.close()


def _a_person_signs_in_on_a_phone_and_sees_that_something_waits(story: Story) -> None:
    page = story.page
    page.goto(story.address)
    page.get_by_label("Name").fill("bea")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()

    page.get_by_role("link", name="Approvals 1").wait_for()
    assert story.fits_the_phone()
    assert story.agent.poll() is None


def _the_request_shows_statement_rows_way_back_and_rule(story: Story) -> None:
    story.page.get_by_role("link", name="Approvals 1").click()
    story.page.get_by_role("heading", name="ALTER TABLE customers DROP COLUMN email").wait_for()

    said = story.page.locator("article.request").inner_text()
    assert "Asked for by migrator" in said
    assert "what each row was and became is kept in the file itself" in said
    assert re.search(
        r"Rule: migrations are approved \(.*takeback\.toml:\d+\)\. Others read these tables\.", said
    )
    assert "ann@example.org" in said  # what would go
    assert story.fits_the_phone()
    story.picture("console-migration-request")


def _without_the_words_it_is_not_approved(story: Story) -> None:
    story.page.get_by_role("button", name="Approve").click()
    story.page.get_by_text("The answer does not say that").wait_for()

    assert len(story.tb.pending()) == 1
    assert story.customers()[0] == (1, "Ann", "ann@example.org")
    story.page.go_back()


def _with_the_words_it_is(story: Story) -> None:
    (waiting,) = story.tb.pending()
    story.seen["effect"] = waiting.id
    story.page.get_by_label("To approve").fill(story.page.locator("q").inner_text())
    story.page.get_by_role("button", name="Approve").click()

    story.page.wait_for_url(f"**/effect/{waiting.id}")
    assert story.tb.pending() == ()


def _the_check_fails_and_the_agent_learns_that_it_was_taken_back(story: Story) -> None:
    said, _ = story.agent.communicate(timeout=20)

    assert said == "taken back: the check failed: OperationalError: no such column: email\n"
    assert story.customers() == [(1, "Ann", "ann@example.org"), (2, "Bo", "bo@example.org")]


def _the_timeline_says_so_with_the_reason(story: Story) -> None:
    story.page.get_by_role("link", name="Timeline").click()
    story.page.get_by_text("taken back: the check failed: OperationalError: no such column: email").wait_for()

    assert "undone" in story.page.locator("li.entry").first.inner_text()
    assert story.fits_the_phone()


def _its_page_says_who_approved_it_and_why_it_went_back(story: Story) -> None:
    story.page.get_by_role("link", name="ALTER TABLE customers DROP COLUMN email").click()
    story.page.get_by_text(
        re.compile("because the check failed: OperationalError: no such column")
    ).wait_for()

    said = story.page.locator("main").inner_text()
    assert re.search(r"decide\s+bea, approver \(not proven\)", said)  # all of it works as one user here
    assert "migrations are approved" in said
    assert story.fits_the_phone()
    story.picture("console-migration")


def _the_evidence_is_exported_and_checked_by_a_bare_python(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(story.place)
    monkeypatch.setenv("TAKEBACK_STORE", str(story.place / "store"))
    assert main(["audit", "export", "evidence.tar.gz"]) == 0
    with tarfile.open("evidence.tar.gz") as bundle:
        bundle.extractall(story.place, filter="data")
    checked = subprocess.run(
        [*BARE, str(story.place / "takeback-evidence" / "verify.py")],
        capture_output=True, text=True, cwd="/", env={}, check=False,
    )  # fmt: skip

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "Sound." in checked.stdout


def _the_bundle_names_the_approval_the_failed_check_and_the_undo(story: Story) -> None:
    id = story.seen["effect"]
    bundle = story.place / "takeback-evidence"
    records = [json.loads(line) for line in (bundle / "records.jsonl").read_text().splitlines()]
    answers = json.loads((bundle / "answers.json").read_text())

    (decision,) = [one for one in records if one["kind"] == "decide"]
    assert decision["effect"] == id and decision["at"]
    said = decision["body"]
    assert (said["approved"], said["by"], said["role"], said["known_by"]) == (
        True, "bea", "approver", "not proven",
    )  # fmt: skip
    (check,) = [one for one in records if one["body"].get("name") == "canary 1: the check"]
    assert "no such column: email" in check["body"]["value"]
    (undo,) = answers["undone"]
    assert (undo["of"], undo["state"]) == (id, "done")
    assert undo["why"] == "the check failed: OperationalError: no such column: email"
    assert "no such column: email" in (bundle / "report.html").read_text()


@pytest.mark.needs("chromium")
def test_the_story(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    _a_person_signs_in_on_a_phone_and_sees_that_something_waits(story)
    _the_request_shows_statement_rows_way_back_and_rule(story)
    _without_the_words_it_is_not_approved(story)
    _with_the_words_it_is(story)
    _the_check_fails_and_the_agent_learns_that_it_was_taken_back(story)
    _the_timeline_says_so_with_the_reason(story)
    _its_page_says_who_approved_it_and_why_it_went_back(story)
    _the_evidence_is_exported_and_checked_by_a_bare_python(story, monkeypatch)
    _the_bundle_names_the_approval_the_failed_check_and_the_undo(story)
