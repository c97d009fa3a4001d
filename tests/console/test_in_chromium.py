"""The console in a real browser: with a mouse, with nothing but a keyboard, on a phone, as each role."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.api import Takeback
from takeback.frontends.console.app import GETS
from takeback.model.effect import State
from tests.calls.post import send_mail
from tests.console.conftest import PASSWORD, Running
from tests.world import World

Edited = list[takeback.Effect]
Open = Callable[..., Any]
PHONE = {"width": 390, "height": 844}
NARROW = "document.documentElement.scrollWidth <= window.innerWidth"


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Open]:
    """A page of a fresh browser, which fails the test if a script fails or the page breaks its own policy."""
    contexts: list[Any] = []
    troubles: list[str] = []

    def start(**options: Any) -> Any:
        contexts.append(chromium.new_context(**options))
        page = contexts[-1].new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        policy = re.compile("Content Security Policy|Refused to")
        page.on("console", lambda said: troubles.append(said.text) if policy.search(said.text) else None)
        return page

    yield start
    for context in contexts:
        context.close()
    assert troubles == []


def signed_in(page: Any, console: Running) -> Any:
    page.goto(console.link)
    page.wait_for_selector("nav")
    return page


def logged_in(page: Any, team: Running, role: str) -> Any:
    page.goto(team.address)
    page.get_by_label("Name").fill(role)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_selector("nav")
    return page


def tab_to(page: Any, name: str, most: int = 60) -> None:
    """With the keyboard alone, to what has this name."""
    for _ in range(most):
        page.keyboard.press("Tab")
        focused = page.evaluate("document.activeElement.innerText || document.activeElement.ariaLabel || ''")
        if focused.strip().startswith(name):
            return
    raise AssertionError(f"{name} cannot be reached with the keyboard")


@pytest.mark.needs("chromium")
def test_on_a_phone_and_with_the_keyboard_alone_an_effect_is_taken_back(
    console: Running, tb: Takeback, edited: Edited, world: World, open_page: Open
) -> None:
    page = signed_in(open_page(viewport=PHONE), console)
    assert page.evaluate(NARROW)
    tree = page.locator("body").aria_snapshot()
    for part in ("banner", "navigation", "main", "search", 'heading "Timeline"'):
        assert part in tree, tree

    # An agent works: it is listed without a click.
    with tb.run("live", agent="deployer") as run:
        run.write(world / "live.txt", "live\n")
    page.get_by_role("link", name="live.txt").wait_for()

    tab_to(page, "write", 90)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Way back: exact").wait_for()
    assert page.evaluate(NARROW)
    tab_to(page, "Undo")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Undo: the plan").wait_for()
    assert page.evaluate(NARROW)
    tab_to(page, "Take back exactly")
    page.keyboard.press("Enter")
    page.get_by_text("Done.").wait_for()
    assert page.evaluate(NARROW)
    assert not (world / "live.txt").exists()


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_no_page_scrolls_sideways_and_each_has_its_landmarks(
    console: Running, tb: Takeback, world: World, open_page: Open
) -> None:
    name = "a" * 120
    with tb.run("long " + "b" * 200, agent="c" * 80) as run:
        effect = run.write(world / f"{name}.txt", ("x" * 400 + " y\n") * 30)
        effect = run.write(world / f"{name}.txt", ("z" * 400 + " y\n") * 30)
    page = signed_in(open_page(viewport=PHONE), console)

    for path in (*GETS, f"/undo?effect={effect.id}", f"/undo?effect={effect.id}&on_conflict=force"):
        if path in ("/job/{id}", "/prompt/{id}", "/store/figures", "/store/proof", "/effect/{id}/part"):
            continue
        id = effect.run if path.startswith("/run/") else effect.id
        page.goto(console.address + path.replace("{id}", id))
        page.wait_for_load_state("load")
        wide = "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
        wide += " && !e.closest('.scroll') && !e.closest('.skip')).map(e => e.outerHTML.slice(0, 120))"
        assert page.evaluate(NARROW), (path, page.evaluate(wide))
        tree = page.locator("body").aria_snapshot()
        assert "main" in tree and "navigation" in tree and "heading" in tree, path
        unnamed = "[...document.querySelectorAll('button, input:not([type=hidden]), select, textarea')]"
        unnamed += (
            ".filter(e => !(e.textContent.trim() || e.ariaLabel || (e.labels && e.labels.length))).length"
        )
        assert page.evaluate(unnamed) == 0, path


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_dark_and_light_follow_the_system_and_the_switch(console: Running, open_page: Open) -> None:
    page = signed_in(open_page(color_scheme="dark"), console)
    back = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(back)

    page.get_by_role("button", name="Dark").click()
    light = page.evaluate(back)
    page.reload()

    assert dark != light
    assert page.evaluate(back) == light
    assert page.get_by_role("button", name="Dark").get_attribute("aria-pressed") == "false"


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_a_restart_of_the_console_is_said_on_the_page(
    console: Running, edited: Edited, open_page: Open
) -> None:
    page = signed_in(open_page(), console)

    console.told[0].end()

    page.locator("#signal").wait_for(state="visible")
    assert re.search("connection|not signed in", page.locator("#signal").inner_text())


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_each_role_sees_its_buttons_and_no_others(
    team: Running,
    tb: Takeback,
    edited: Edited,
    open_page: Open,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POST", str(tmp_path / "post"))
    with tb.run("write", agent="writer") as run, pytest.raises(takeback.AwaitingApproval):
        run.call(send_mail, "anna", key="mail-1")
    seen: dict[str, set[str]] = {}
    for role in ("viewer", "approver", "operator"):
        page = logged_in(open_page(), team, role)
        seen[role] = set()
        for path in (
            "/",
            "/approvals",
            "/dead",
            "/doubts",
            f"/effect/{edited[2].id}",
            f"/undo?effect={edited[2].id}",
        ):
            page.goto(team.address + path)
            seen[role] |= set(page.locator("main button, .stop summary").all_inner_texts())
    looks = {"Search", "Show this plan"}

    assert seen["viewer"] == looks
    assert seen["approver"] - looks <= {"Stop…", "Approve", "Deny"} and "Stop…" in seen["approver"]
    assert {"Take back exactly this", "Pin", "Stop…"} <= seen["operator"]


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_every_button_does_what_it_says(
    console: Running, tb: Takeback, edited: Edited, world: World, open_page: Open, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("POST", str(tmp_path / "post"))
    page = signed_in(open_page(), console)
    at = console.address

    page.get_by_role("searchbox").fill("other")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="other.txt").click()
    page.get_by_role("button", name="Pin").click()
    page.get_by_role("button", name="Unpin").wait_for()
    assert tb.effect(edited[2].id).pinned
    page.get_by_role("button", name="Unpin").click()
    page.get_by_role("link", name="Undo…").click()
    page.get_by_label("also later effects").check()
    page.get_by_role("button", name="Show this plan").click()
    page.get_by_role("button", name="Take back exactly this").click()
    page.get_by_role("link", name="Bring it back…").click()
    page.get_by_role("button", name="Bring back exactly this").click()
    page.get_by_text("Done.").wait_for()
    assert (world / "other.txt").exists()

    page.get_by_text("Stop…").click()
    page.get_by_label("What").select_option("agent:deployer")
    page.locator(".stop").get_by_label("Why").fill("too fast")
    page.get_by_role("button", name="Stop now").click()
    page.get_by_text("Agent deployer was stopped").wait_for()
    assert [one.agent for one in tb.stops()] == ["deployer"]
    page.get_by_role("button", name="Lift the stop").click()
    page.get_by_text("Agent deployer was stopped").wait_for(state="detached")

    with tb.run("write", agent="writer") as run:
        with pytest.raises(takeback.AwaitingApproval):
            run.call(send_mail, "anna", key="mail-1")
        page.goto(f"{at}/approvals")
        words = page.locator("q").inner_text()
        page.get_by_label("To approve").fill(words)
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("decide").first.wait_for()
        assert tb.pending() == ()

    page.goto(f"{at}/store")
    page.locator("#figures").get_by_role("link", name="Look again").click()
    page.locator("#proof").get_by_text("As of").wait_for()
    page.goto(f"{at}/dead")
    page.get_by_role("button", name="Recover").click()
    page.get_by_text("Done.").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Open the console").wait_for()
    assert tb.effect(edited[2].id).state is State.DONE


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_it_works_without_scripts(console: Running, edited: Edited, world: World, open_page: Open) -> None:
    page = open_page(java_script_enabled=False)
    page.goto(console.link)
    page.get_by_role("button", name="Open the console").click()
    page.get_by_role("link", name="other.txt").click()
    page.get_by_role("link", name="Undo…").click()
    page.get_by_role("button", name="Take back exactly this").click()

    page.get_by_text("Done.").wait_for()
    assert not (world / "other.txt").exists()


@pytest.mark.slow
@pytest.mark.needs("chromium")
def test_names_of_files_run_nothing_in_the_browser(
    console: Running, tb: Takeback, world: World, open_page: Open
) -> None:
    evil = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'<"
    with tb.run(evil, agent=evil) as run:
        effect = run.write(world / evil.replace("/", "-"), evil)
    page = signed_in(open_page(), console)

    for path in ("/", f"/effect/{effect.id}", f"/undo?effect={effect.id}", "/runs", f"/?q={'%3Cscript%3E'}"):
        page.goto(console.address + path)
        assert "broken" not in page.title().replace(evil[:80], ""), path
        assert page.locator("main img, main script").count() == 0, path
