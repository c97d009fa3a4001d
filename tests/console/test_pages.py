"""What the console shows, and what comes of its buttons."""

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.api import Takeback
from takeback.frontends.console.app import GETS
from takeback.model.effect import State
from takeback.model.record import STORE, Kind
from tests.calls import post
from tests.calls.post import send_mail
from tests.console.conftest import Client, Got, Running
from tests.world import World

Edited = list[takeback.Effect]
KEY = "wJalr9XUtnFEMIK7MDENGbPxRfiCY3f9Kq2LzQ8v"


@pytest.fixture(autouse=True)
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POST", str(tmp_path / "post"))


def finished(client: Client, got: Got) -> Got:
    """The page of the job that a button began, when it is over."""
    assert got.status == 303, got.words
    path = got.headers["location"]
    while (page := client.get(path)).text.count('data-outcome="running"'):
        client.get(f"{path}/events")  # ends with the job
    return page


def taken_back(client: Client, query: str) -> Got:
    plan = client.get(f"/undo?{query}")
    assert plan.status == 200, plan.words
    return finished(client, client.post("/undo", plan.fields))


def record_of_run(tb: Takeback, effect: takeback.Effect) -> dict[str, Any]:
    return next(tb.store.journal.records(run=effect.run, kinds=(Kind.OPEN,))).body


def test_the_timeline_has_the_newest_first_under_its_run(console: Running, edited: Edited) -> None:
    page = console.client().get("/")

    assert re.findall(r'href="/effect/(\w+)"', page.text) == [one.id for one in reversed(edited)]
    assert "enable TLS · deployer" in page.words


def test_the_timeline_comes_in_pages_and_is_searched(console: Running, tb: Takeback, world: World) -> None:
    with tb.run("many", agent="writer") as run:
        made = [run.write(world / f"f{n:03}.txt", f"{n}") for n in range(120)]
    client = console.client()

    seen: list[str] = []
    path = "/"
    while path:
        page = client.get(path)
        seen += re.findall(r'href="/effect/(\w+)"', page.text)
        older = re.search(r'rel="next" href="([^"]+)"', page.text)
        path = older[1].replace("&amp;", "&") if older else ""

    assert seen == [one.id for one in reversed(made)]
    for query in ("q=f007", f"path={world / 'f007.txt'}"):
        assert re.findall(r'href="/effect/(\w+)"', client.get(f"/?{query}").text) == [made[7].id]
    assert client.get(f"/?q={made[7].id[:8]}").headers["location"] == f"/effect/{made[7].id}"
    assert "No effects match" in client.get("/?agent=nemo").words


def test_an_effect_shows_both_sides_and_what_stands_on_it(console: Running, edited: Edited) -> None:
    page = console.client().get(f"/effect/{edited[1].id}")
    below = console.client().get(f"/effect/{edited[0].id}")

    assert "removed: on = false" in page.words and "added: on = true" in page.words
    assert "Way back: exact" in page.words
    assert "These stand on it and must go back first" in below.words
    assert f'<a href="/effect/{edited[1].id}"><g' in below.text


def test_what_is_taken_back_is_the_plan_that_was_shown(
    console: Running, tb: Takeback, edited: Edited, world: World
) -> None:
    client = console.client()

    page = taken_back(client, f"effect={edited[1].id}")

    assert "Done." in page.words
    assert (world / "app.toml").read_text() == "on = false\nport = 80\n"
    (undo,) = [one for one in tb.effects() if one.is_undo]
    told = record_of_run(tb, undo)
    assert (told["known_by"], told["role"]) == ("not proven", "operator")
    assert told["by"]

    redo = re.search(r'href="(/undo\?verb=redo[^"]+)"', page.text)
    assert redo
    finished(client, client.post("/undo", client.get(redo[1].replace("&amp;", "&")).fields))
    assert (world / "app.toml").read_text() == "on = true\nport = 443\n"


def test_a_plan_that_has_drifted_is_shown_again_and_nothing_happens(
    console: Running, tb: Takeback, edited: Edited, world: World
) -> None:
    client = console.client()
    plan = client.get(f"/undo?effect={edited[2].id}")
    os.chmod(world / "other.txt", 0o600)
    with tb.run("more", agent="deployer") as run:
        run.write(world / "other.txt", "third\n")

    got = client.post("/undo", plan.fields)

    assert got.status == 409
    assert "Later effects depend on this one" in got.words
    assert (world / "other.txt").read_text() == "third\n"
    assert tb.effect(edited[2].id).state is State.DONE


def test_a_forced_plan_is_bound_to_what_it_would_overwrite(
    console: Running, edited: Edited, world: World
) -> None:
    client = console.client()
    (world / "other.txt").write_text("a person was here\n")
    plan = client.get(f"/undo?effect={edited[2].id}&on_conflict=force")
    (world / "other.txt").write_text("a person was here again\n")

    got = client.post("/undo", plan.fields)

    assert got.status == 409 and "something changed in between" in got.words
    assert (world / "other.txt").read_text() == "a person was here again\n"

    page = finished(client, client.post("/undo", got.fields))
    assert "Done." in page.words
    assert not (world / "other.txt").exists()


def test_a_click_that_comes_twice_happens_once(console: Running, tb: Takeback, edited: Edited) -> None:
    client = console.client()
    plan = client.get(f"/undo?effect={edited[2].id}")

    finished(client, client.post("/undo", plan.fields))
    again = client.post("/undo", plan.fields)

    assert again.status == 409
    assert len([one for one in tb.effects() if one.is_undo]) == 1


def test_the_plan_is_checked_again_right_before_the_first_change(
    tb: Takeback, edited: Edited, world: World
) -> None:
    from takeback.frontends.console.agreed_plan import UndoWish, bind, planned

    wish = UndoWish("undo", (edited[2].id,))
    shown = planned(tb, wish)
    bind(tb, shown._replace(targets=()))

    with pytest.raises(takeback.Drifted):
        planned(tb, wish, dry_run=False)
    assert (world / "other.txt").exists()
    bind(tb, shown)
    planned(tb, wish, dry_run=False)
    assert not (world / "other.txt").exists()


def test_a_conflict_offers_a_merge_with_its_preview(console: Running, tb: Takeback, world: World) -> None:
    lines = [f"line {n}\n" for n in range(20)]
    with tb.run("edit", agent="deployer") as run:
        run.write(world / "long.txt", "".join(lines))
        effect = run.write(world / "long.txt", "".join(["first\n", *lines[1:]]))
    (world / "long.txt").write_text("".join(["first\n", *lines[1:-1], "last\n"]))
    client = console.client()

    refused = client.get(f"/undo?effect={effect.id}")
    merge = client.get(f"/undo?effect={effect.id}&on_conflict=merge")

    assert "This would be refused" in refused.words and "exactly this" not in refused.words
    assert "+line 0" in merge.words and "-first" in merge.words
    finished(client, client.post("/undo", merge.fields))
    assert (world / "long.txt").read_text() == "".join([*lines[:-1], "last\n"])


def test_one_path_of_several_is_taken_back(console: Running, tb: Takeback, world: World) -> None:
    with tb.run("edit", agent="deployer") as run:
        effect = run.write_all({world / "a": "a\n", world / "b": "b\n"})
    client = console.client()
    plan = client.get(f"/undo?effect={effect.id}")
    assert "Path by path" in plan.words

    taken_back(client, f"effect={effect.id}&path=file://{world / 'a'}")

    assert not (world / "a").exists() and (world / "b").exists()
    assert "partly undone" in client.get("/").words


def test_a_run_is_taken_back_and_cascade_takes_what_stands_on_it(
    console: Running, edited: Edited, world: World
) -> None:
    client = console.client()

    assert "--cascade undoes them too" in client.get(f"/undo?effect={edited[0].id}").words
    taken_back(client, f"effect={edited[0].id}&cascade=1")
    assert not (world / "app.toml").exists() and (world / "other.txt").exists()

    taken_back(client, f"run={edited[2].run}")
    assert not (world / "other.txt").exists()


def test_an_approval_needs_the_words_and_the_digest(console: Running, tb: Takeback) -> None:
    client = console.client()
    with tb.run("write", agent="writer") as run:
        with pytest.raises(takeback.AwaitingApproval):
            run.call(send_mail, "anna", key="mail-1")
        (effect,) = tb.pending()
        page = client.get("/approvals")
        words = re.search(r"type <q>([^<]+)</q>", page.text)
        assert words and "anna" in page.words
        fields = {**page.fields, "decision": "approve", "answer": words[1]}
        path = f"/approval/{effect.id}"

        assert client.post(path, {**fields, "answer": "yes"}).status == 409
        assert client.post(path, {**fields, "digest": "0" * 64}).status == 409
        assert tb.pending() == (effect,)
        assert client.post(path, fields).status == 303
        assert client.post(path, fields).status == 409
        run.call(send_mail, "anna", key="mail-1")

    assert post.sent() == ["mail anna hello"]
    (record,) = tb.store.journal.records(kinds=(Kind.DECIDE,), effect=effect.id)
    assert (record.body["known_by"], record.body["role"]) == ("not proven", "operator")


def test_a_denial_reaches_the_agent_with_its_reason(console: Running, tb: Takeback) -> None:
    client = console.client()
    with tb.run("write", agent="writer") as run:
        with pytest.raises(takeback.AwaitingApproval):
            run.call(send_mail, "anna", key="mail-1")
        page = client.get("/approvals")
        (effect,) = tb.pending()
        client.post(f"/approval/{effect.id}", {**page.fields, "decision": "deny", "why": "not today"})

        with pytest.raises(takeback.Denied, match="not today"):
            run.call(send_mail, "anna", key="mail-1")
    assert post.sent() == []


@takeback.action(name="tests.console.lost")
def lost(amount: int) -> None:
    raise takeback.InDoubt("The answer was lost.")


@lost.undo
def found_again(receipt: Any, amount: int) -> None: ...


def test_a_call_in_doubt_is_settled_with_its_evidence(console: Running, tb: Takeback) -> None:
    with tb.run("buy", agent="buyer") as run, pytest.raises((takeback.InDoubt, takeback.Stuck)):
        run.call(lost, 40)
    client = console.client()
    page = client.get("/doubts")
    assert '"amount": 40' in page.words and "Key:" in page.words
    (effect,) = [one for one in tb.effects() if one.state is State.STUCK]

    assert client.post(f"/doubt/{effect.id}", {}).status == 400
    assert client.post(f"/doubt/{effect.id}", {"happened": "yes", "receipt": "no json"}).status == 400
    assert client.post(f"/doubt/{effect.id}", {"happened": "no"}).status == 303

    assert tb.effect(effect.id).state is State.ABORTED
    (record,) = tb.store.journal.records(kinds=(Kind.ABORT,), effect=effect.id)
    assert record.body["role"] == "operator"
    assert "Nothing is in doubt" in client.get("/doubts").words


def test_everything_is_stopped_and_lifted_with_a_name(console: Running, tb: Takeback, world: World) -> None:
    client = console.client()

    assert (
        client.post("/stop", {"what": "all:", "why": "look first", "back": "/runs"}).headers["location"]
        == "/runs"
    )

    with pytest.raises(takeback.Refused, match="look first"), tb.run("more", agent="x") as run:
        run.write(world / "more", "more")
    assert not (world / "more").exists()
    page = client.get("/")
    assert "Everything was stopped by" in page.words
    for back in ("//evil.example", "/\\evil.example", "https://evil.example"):
        got = client.post("/lift", {"stop": page.fields["stop"], "back": back})
        assert got.headers["location"] == "/"
    (record,) = tb.store.journal.records(run=STORE, kinds=(Kind.LIFT,))
    assert record.body["role"] == "operator"
    assert tb.stops() == ()


def test_a_dead_run_is_listed_and_recovered(
    console: Running, tb: Takeback, world: World, store: Path
) -> None:
    import subprocess
    import sys

    dies = "import os, sys, takeback\ntb = takeback.open(sys.argv[1])\nrun = tb.run('dies', agent='a')\n"
    dies += "run.write(sys.argv[2], 'half')\nos._exit(9)\n"
    subprocess.run([sys.executable, "-c", dies, str(store), str(world / "half")], check=False)
    client = console.client()
    assert "dies" in client.get("/dead").words

    finished(client, client.post("/dead"))

    assert not (world / "half").exists()
    assert "No run died" in client.get("/dead").words


def test_held_dropped_pinned_and_accepted_by_a_button(console: Running, tb: Takeback, edited: Edited) -> None:
    client = console.client()
    path = f"/effect/{edited[2].id}"

    assert client.post(path, {"deed": "pin"}).status == 303
    assert tb.effect(edited[2].id).pinned
    assert client.post(path, {"deed": "unpin"}).status == 303
    assert client.post(path, {"deed": "forget"}).status == 400
    (record,) = tb.store.journal.records(kinds=(Kind.PIN,), effect=edited[2].id)
    assert record.body["role"] == "operator"


def test_slow_figures_come_with_their_age(console: Running, edited: Edited) -> None:
    client = console.client()

    page = client.get("/store")
    assert 'hx-get="/store/figures"' in page.text and "3" in page.words
    assert "As of now" in client.get("/store/figures").words
    assert re.search(r"As of (now|\d+ seconds? ago)", client.get("/store/figures").words)


def test_a_secret_is_masked_everywhere_and_still_comes_back(
    console: Running, tb: Takeback, world: World
) -> None:
    secret = f"aws_secret_access_key = {KEY}\n"
    with tb.run("edit", agent="deployer") as run:
        run.write(world / "credentials", secret)
        effect = run.write(world / "credentials", "none\n")
    client = console.client()

    for path in ("/", f"/effect/{effect.id}", f"/undo?effect={effect.id}"):
        assert KEY not in client.get(path).text, path
    taken_back(client, f"effect={effect.id}")
    assert (world / "credentials").read_text() == secret


def test_the_level_of_proof_is_shown_with_its_weaknesses(console: Running, edited: Edited) -> None:
    page = console.client().get("/store/proof")

    assert "Proof: level 0" in page.words and "There is no anchor" in page.words


def test_a_decision_is_recorded_once_and_the_hand_leaves_nothing(
    console: Running, tb: Takeback, edited: Edited
) -> None:
    client = console.client()
    before = len(console.tb.store.database.after_write)

    for deed in ("pin", "unpin") * 3:
        client.post(f"/effect/{edited[2].id}", {"deed": deed})

    assert len(console.tb.store.database.after_write) == before
    assert len(list(tb.store.journal.records(kinds=(Kind.PIN,), effect=edited[2].id))) == 3


def test_every_page_opens(console: Running, edited: Edited, tb: Takeback) -> None:
    client = console.client()
    ids = {"/run/{id}": edited[2].run, "/prompt/{id}": "", "/job/{id}": ""}

    for path in GETS:
        id = ids.get(path, edited[2].id)
        query = f"?target={edited[2].targets[0].resource}" if path.endswith("/part") else ""
        query = f"?effect={id}" if path == "/undo" else query
        got = client.get(path.replace("{id}", id) + query)
        if path == f"/approval/{'{id}'}":
            assert got.status == 303  # it asks for none
        elif id:
            assert got.status == 200 and "traceback" not in got.text.lower(), path


def test_two_people_click_the_same_undo_and_one_wins(
    console: Running, tb: Takeback, edited: Edited, world: World
) -> None:
    ann, bo = console.client(), console.client()
    plans = [one.get(f"/undo?effect={edited[2].id}") for one in (ann, bo)]
    both = threading.Barrier(2)

    def click(who: Client, plan: Got) -> Got:
        both.wait(20)
        return who.post("/undo", plan.fields)

    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(click, (ann, bo), plans))
    for who, answer in zip((ann, bo), got, strict=True):
        if answer.status == 303:
            finished(who, answer)

    assert {one.status for one in got} <= {303, 409} and 303 in {one.status for one in got}
    assert len([one for one in tb.effects() if one.is_undo and one.state is State.DONE]) == 1
    assert not (world / "other.txt").exists()
    again = ann.post("/undo", plans[0].fields)
    assert again.status == 409 and "something changed in between" in again.words
