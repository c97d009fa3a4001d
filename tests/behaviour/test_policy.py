"""A policy at the doors: what it denies, holds and asks for; whose files count; who may change them."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import takeback
from takeback.api import opened_of
from takeback.model.record import STORE, Kind
from takeback.model.ruling import PolicyAnswer
from takeback.policy.rules import Level
from takeback.runs.person import person_here
from takeback.runs.policies import Policies
from takeback.runs.policy_files import read_layer, trust
from tests.behaviour.conftest import Scene
from tests.doors import ledger

Rules = Callable[[str], Path]


@pytest.fixture
def user() -> Iterator[Rules]:
    """Writes the file of the user."""
    file = Path(os.environ["HOME"], ".config/takeback/config.toml")

    def write(text: str) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    yield write
    file.unlink(missing_ok=True)


@pytest.fixture
def project(scene: Scene) -> Rules:
    def write(text: str) -> Path:
        file = Path(scene.world.root, "takeback.toml")
        file.write_text(text)
        return file

    return write


def rule(match: str, then: str, more: str = "") -> str:
    return f'[[rule]]\nname = "the rule"\nmatch = {{{match}}}\nthen = "{then}"\n{more}\n'


def records(scene: Scene, kind: Kind) -> list[dict[str, object]]:
    return [one.body for one in scene.tb.store.journal.records(run=STORE, kinds=(kind,))]


@pytest.mark.real
def test_without_a_file_nothing_of_the_policy_is_imported(scene: Scene) -> None:
    code = (
        "import sys, takeback\n"
        "with takeback.open(sys.argv[1]) as tb, tb.run('r') as run: run.write(sys.argv[2], b'x')\n"
        "print(*sys.modules)"
    )
    words = [sys.executable, "-c", code, str(scene.tb.path), str(scene.world / "a")]

    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    of_policy = (
        "policy_files",
        "engine.ruling",
        "policy.rules",
        "policy.decide",
        "policy.parse",
        "policy.compiled",
    )
    assert [one for one in found if one.endswith(of_policy) or one == "tomllib"] == []
    assert "takeback.engine.guards" in found


def test_what_a_rule_denies_is_refused_with_its_name_and_why(scene: Scene, project: Rules) -> None:
    project(rule('path = "conf"', "deny", 'why = "It is frozen."'))

    with pytest.raises(
        takeback.Denied, match=r"the rule 'the rule' \(.*takeback.toml:1\) denies it. It is frozen."
    ):
        scene.write("conf", "x")

    assert scene.text("conf") is None


def test_a_held_write_is_made_when_a_person_applies_it(scene: Scene, project: Rules) -> None:
    project(rule('path = "conf"', "hold"))

    with pytest.raises(takeback.AwaitingApproval) as waits:
        scene.write("conf", "x")
    assert scene.text("conf") is None
    scene.tb.apply(waits.value.effect or "")

    assert scene.text("conf") == "x"
    (effect,) = scene.tb.effects()
    assert effect.phase.ruling
    assert (effect.phase.ruling.rule, effect.phase.ruling.answer) == ("the rule", PolicyAnswer.HOLD)


def test_what_is_asked_for_is_made_only_after_a_yes(scene: Scene, project: Rules) -> None:
    project(rule('path = "conf"', "ask"))

    with pytest.raises(takeback.AwaitingApproval) as waits:
        scene.write("conf", "x")
    id = waits.value.effect or ""
    with pytest.raises(takeback.Refused, match="waits for an approval"):
        scene.tb.apply(id)
    scene.tb.approve(id, by="bea")
    scene.tb.apply(id)

    assert scene.text("conf") == "x"


def test_after_a_no_it_is_not_made(scene: Scene, project: Rules) -> None:
    project(rule('path = "conf"', "ask"))
    with pytest.raises(takeback.AwaitingApproval) as waits:
        scene.write("conf", "x")

    scene.tb.deny(waits.value.effect or "", by="bea")

    with pytest.raises(takeback.Refused):
        scene.tb.apply(waits.value.effect or "")
    assert scene.text("conf") is None


def test_a_command_is_denied_before_it_runs(scene: Scene, project: Rules) -> None:
    project(rule('command = "touch"', "deny"))

    with scene.tb.run("r") as run, pytest.raises(takeback.Denied):
        run.command(f"cd / && touch {scene.world / 'a'}", cwd=scene.world.root)

    assert scene.text("a") is None


def test_a_command_is_held_for_what_it_changed(scene: Scene, project: Rules) -> None:
    project(rule("files_over = 2", "hold"))

    with scene.tb.run("r") as run:
        few = run.command("touch a b", cwd=scene.world.root)
        many = run.command("touch c d e", cwd=scene.world.root)

    assert few.effect
    assert not few.held
    assert many.held
    assert scene.text("c") is None


def test_a_command_in_a_box_is_denied_and_its_merge_is_held(scene: Scene, project: Rules) -> None:
    project(rule('command = "touch"', "deny") + rule('path = "a"', "hold").replace("the rule", "hold a"))

    with scene.tb.run("r") as run, run.sandbox(cwd=scene.world.root) as box:
        with pytest.raises(takeback.Denied):
            box.run("touch b")
        box.run("echo x > a")
        with pytest.raises(takeback.AwaitingApproval):
            box.commit()

    assert scene.text("a") is None


def test_a_watch_is_refused_before_it_begins_and_its_finding_is_recorded(
    scene: Scene, project: Rules
) -> None:
    file = project(rule('kind = "watch"', "deny"))
    with scene.tb.run("r") as run, pytest.raises(takeback.Denied), run.watch(scene.world.root):
        pytest.fail("it began")
    file.write_text(rule('path = "a"', "deny"))

    with scene.tb.run("r") as run, run.watch(scene.world.root) as watched:
        scene.put("a", "x")

    assert watched.effect
    assert watched.effect.phase.ruling
    assert watched.effect.phase.ruling.answer is PolicyAnswer.DENY


@pytest.fixture
def database(scene: Scene) -> str:
    file = scene.world / "d.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (x INTEGER PRIMARY KEY, y TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, 'a')", [(number,) for number in range(5)])
    connection.close()
    return f"sqlite:///{file}"


@pytest.mark.parametrize(
    ("match", "statement"),
    [
        ('verb = "delete"', "DELETE FROM t WHERE x = 1"),
        ('table = "t"', "UPDATE t SET y = 'b' WHERE x = 1"),
        ("rows_over = 3", "UPDATE t SET y = 'b'"),
    ],
)
def test_a_statement_is_denied_and_rolled_back(
    match: str, statement: str, scene: Scene, database: str, project: Rules
) -> None:
    project(rule(match, "deny"))

    with scene.tb.run("r") as run, run.sql(database) as db:
        with pytest.raises(takeback.Denied):
            db.execute(statement)
        with pytest.raises(takeback.Denied), db.transaction("all"):
            db.execute(statement)
        assert db.execute("SELECT count(*) FROM t WHERE y = 'a'").rows == ((5,),)


def test_a_statement_that_must_wait_is_refused_unless_it_is_held(
    scene: Scene, database: str, project: Rules
) -> None:
    project(rule('verb = "delete"', "ask"))

    with scene.tb.run("r") as run:
        with run.sql(database) as db, pytest.raises(takeback.Refused, match="approve it first"):
            db.execute("DELETE FROM t WHERE x = 1")
        with run.sql(database, hold=True) as db:
            effect = db.execute("DELETE FROM t WHERE x = 1").effect
            assert effect
            with pytest.raises(takeback.Refused, match="waits for an approval"):
                run.apply(effect)
            scene.tb.approve(effect.id, by="bea")
            run.apply(effect)
        with run.sql(database) as db:
            assert db.execute("SELECT count(*) FROM t").rows == ((4,),)


def test_a_call_is_denied_by_its_argument(
    scene: Scene, project: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = scene.world / "ledger"
    lines.touch()
    monkeypatch.setenv("LEDGER", str(lines))
    project(rule('action = "order", argument = {what = "gold"}', "deny"))

    with scene.tb.run("r", project=scene.world.root) as run:
        with pytest.raises(takeback.Denied):
            run.call(ledger.order, "gold")
        run.call(ledger.order, "tea")

    assert len(ledger.lines()) == 1


def test_a_budget_stops_the_agent_until_a_person_lifts_that(scene: Scene, project: Rules) -> None:
    project('[[budget]]\nname = "writes"\nmatch = {kind = "write"}\nmost = 2\nper = "1h"\n')
    for name in ("a", "b"):
        scene.write(name, "x", agent="eve")

    with pytest.raises(takeback.Denied, match="budget 'writes'"):
        scene.write("c", "x", agent="eve")
    with pytest.raises(takeback.Refused, match="stopped"):
        scene.write("d", "x", agent="eve")
    scene.write("e", "x", agent="ann")

    assert [one.agent for one in scene.tb.stops()] == ["eve"]


BROKEN = 'x = "\n'


def test_a_broken_file_stops_changes_and_never_looking_and_undo(scene: Scene, project: Rules) -> None:
    effect = scene.write("a", "x")
    file = project(BROKEN)

    with pytest.raises(takeback.Misuse, match=r"takeback.toml, line 1, column \d+: "):
        scene.write("b", "x")
    assert len(scene.tb.effects()) == 1
    scene.tb.recover()
    scene.tb.undo(effect)
    assert scene.text("a") is None
    scene.tb.stop(agent="eve", why="broken")
    file.unlink()
    scene.write("b", "x")


@pytest.mark.parametrize("way", ["edit", "delete", "move", "with its directory", "in a command"])
def test_a_change_of_the_policy_is_held(way: str, scene: Scene, project: Rules) -> None:
    file = project(rule('path = "conf"', "deny"))
    text = file.read_text()
    (scene.world.root / ".git").mkdir()

    with scene.tb.run("r", agent="eve", project=scene.world.root) as run:
        if way == "in a command":
            assert run.command("rm takeback.toml", cwd=scene.world.root).held
        else:
            with pytest.raises(takeback.AwaitingApproval, match="the policy itself"):
                match way:
                    case "edit":
                        run.write(file, b"")
                    case "delete":
                        run.delete(file)
                    case "move":
                        run.move(file, scene.world / "away")
                    case _:
                        run.delete(scene.world.root)

    assert file.read_text() == text
    with pytest.raises(takeback.Denied):
        scene.write("conf", "x")


def test_what_a_file_of_a_project_allows_counts_once_a_person_trusts_exactly_that(
    scene: Scene, project: Rules
) -> None:
    text = '[settings]\ndefault = "hold"\n'
    policies = opened_of(scene.tb).policies
    file = project(text + rule('path = "a"', "allow"))
    assert not policies.at(str(scene.world.root)).layers[-1].trusted

    trust(scene.tb.store, read_layer(str(file), Level.PROJECT), person_here(scene.tb.store))
    assert policies.at(str(scene.world.root)).layers[-1].trusted

    file.write_text(text + rule('path = "b"', "allow"))
    assert not policies.at(str(scene.world.root)).layers[-1].trusted


def test_which_file_counted_and_when_is_recorded(scene: Scene, project: Rules) -> None:
    file = project(rule('path = "conf"', "deny"))
    for name in ("a", "b"):
        scene.write(name, "x")
    first = records(scene, Kind.POLICY)
    file.write_text(rule('path = "conf"', "hold"))
    scene.write("c", "x")
    file.unlink()
    scene.write("d", "x")

    found = records(scene, Kind.POLICY)
    assert first == found[:1]
    assert [one["file"] for one in found] == [str(file)] * 3
    assert [bool(one["digest"]) for one in found] == [True, True, False]


def test_looking_records_no_policy(scene: Scene, project: Rules) -> None:
    project(rule('path = "conf"', "deny"))

    opened_of(scene.tb).policies.at(str(scene.world.root))
    with pytest.raises(takeback.Denied):
        scene.write("conf", "x")

    assert records(scene, Kind.POLICY) == []


def test_the_file_of_a_user_is_strictest_together_with_that_of_the_project(
    scene: Scene, project: Rules, user: Rules
) -> None:
    user(rule('path = "conf"', "deny"))
    project(rule('path = "conf"', "allow"))

    with pytest.raises(takeback.Denied):
        scene.write("conf", "x")


@pytest.mark.root
@pytest.mark.parametrize(("mode", "owner"), [(0o666, 0), (0o644, 12345), (0o664, 0)])
def test_the_administrators_file_counts_only_if_nobody_else_can_write_it(
    mode: int, owner: int, scene: Scene, tmp_path: Path
) -> None:
    file = tmp_path / "etc" / "config.toml"
    file.parent.mkdir(mode=0o755)
    file.write_text(rule('path = "conf"', "deny"))
    policies = Policies(scene.tb.store, lambda run: "", str(file))
    os.chmod(file, 0o644)
    assert policies.at("/").layers[0].level is Level.ADMINISTRATOR

    os.chown(file, owner, 0)
    os.chmod(file, mode)

    with pytest.raises(takeback.Refused, match="does not count"):
        policies.at("/")


def test_a_file_that_anybody_could_have_written_does_not_count(scene: Scene, project: Rules) -> None:
    project(rule("", "deny"))
    os.chmod(scene.world.root, 0o777)
    try:
        scene.write("a", "x")
    finally:
        os.chmod(scene.world.root, 0o755)


def test_a_variable_does_not_switch_the_users_file_off(
    scene: Scene, user: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user(rule('path = "conf"', "deny"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    with takeback.open(scene.tb.path) as tb, tb.run("r") as run, pytest.raises(takeback.Denied):
        run.write(scene.world / "conf", b"x")
