"""Settings in files: whose counts, what a broken one must not cost, how settings.json moves."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import takeback
from takeback.api import opened_of
from takeback.errors import ResourceUnreachable
from takeback.model.settings import OF_A_PROJECT, Settings
from takeback.policy.rules import Layer, Level
from takeback.runs.person import person_here
from takeback.runs.policy_files import layer_of, read_layer, trust
from takeback.runs.settings_change import MOVED, SettingsTable, changed, move, waiting
from takeback.runs.settings_in_force import in_force, read_settings
from takeback.storage import disk
from tests.world import World

Rules = Callable[[str], Path]
STORE = "/srv/store"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rules:
    """Writes the file of the user."""
    file = tmp_path / "configuration/takeback/config.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))

    def write(text: str) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return write


def layer(level: Level, text: str, trusted: bool = True) -> Layer:
    return layer_of(f"/{level.name.lower()}.toml", level, text.encode())._replace(trusted=trusted)


def of_store(text: str) -> str:
    return f'[stores."{STORE}".settings]\n{text}\n'


# The strongest first: what each of them says, and the value that counts when those before are left out.
SAID = (
    ("administrator", lambda: layer(Level.ADMINISTRATOR, "[settings]\nlock_seconds = 1\n")),
    ("store", lambda: None),
    ("user, for this store", lambda: layer(Level.USER, of_store("lock_seconds = 3"))),
    ("project", lambda: layer(Level.PROJECT, "[settings]\nlock_seconds = 4\n")),
    ("user", lambda: layer(Level.USER, "[settings]\nlock_seconds = 5\n")),
)


@pytest.mark.parametrize("first", range(len(SAID)), ids=[name for name, _ in SAID])
def test_whose_setting_counts(first: int) -> None:
    names = [name for name, _ in SAID[first:]]
    layers = [one for _, make in SAID[first:] if (one := make())]
    own = {"lock_seconds": 2} if "store" in names else {}

    for given in (layers, layers[::-1]):
        assert in_force(given, STORE, own)["lock_seconds"].value == first + 1


def test_a_store_hears_nothing_of_another_ones_settings_and_of_an_untrusted_project() -> None:
    given = [
        layer(Level.USER, of_store("lock_seconds = 3")),
        layer(Level.PROJECT, "[settings]\nlock_seconds = 4\n", trusted=False),
    ]
    assert in_force(given, "/another", {}) == {}


def test_a_value_of_the_store_counts_also_where_it_is_the_default() -> None:
    given = [layer(Level.USER, "[settings]\naudit_days = 9\n")]
    assert in_force(given, STORE, {"audit_days": 7})["audit_days"].value == 7


def test_a_preset_is_its_numbers_and_a_setting_beside_it_counts_more() -> None:
    found = in_force([layer(Level.USER, '[settings]\nretention = "small"\nstore_bytes = 9\n')], STORE, {})
    assert {name: one.value for name, one in found.items()} == {
        "accepted_seconds": 3600, "store_bytes": 9, "versions_per_file": 50
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[settings]\nstore_bytes = 1\n", "nothing that a project decides"),
        ('[settings]\nretention = "small"\n', "nothing that a project decides"),
        (of_store("lock_seconds = 1"), "nothing that a project decides"),
        ("[settings]\nlock_second = 1\n", "does not exist"),
    ],
)
def test_what_a_project_may_not_set_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(takeback.Misuse, match=rf"line \d+.*{said}"):
        layer(Level.PROJECT, text)


def test_nothing_of_what_a_project_sets_gives_up_a_way_back() -> None:
    about_ways_back = {
        "accepted_seconds", "audit_days", "dropped_seconds", "dropped_bytes", "dropped_most", "versions_per_file",
        "store_bytes", "free_bytes", "reserve_bytes", "grace_seconds", "lease_seconds",
    }  # fmt: skip
    assert set(OF_A_PROJECT) | about_ways_back == set(Settings._fields)
    assert not set(OF_A_PROJECT) & about_ways_back


@pytest.mark.parametrize(
    "text", ["[stores]\nx = 1\n", '[stores."/a"]\nsetting = 1\n', of_store("audit_days = -1")]
)
def test_settings_for_a_store_are_checked_as_strictly(text: str) -> None:
    with pytest.raises(takeback.Misuse, match=r"user\.toml, line"):
        layer(Level.USER, text)


def test_the_files_count_for_an_open_store(user: Rules, store: Path, world: World) -> None:
    user(f'[settings]\nlock_seconds = 3\n[stores."{store}".settings]\nmax_rows = 4\n')
    project = world / "takeback.toml"
    project.write_text("[settings]\nwatch_entries = 5\n")
    here = os.getcwd()
    os.chdir(world.root)
    try:
        with takeback.open(store) as tb:
            given = tb.store.settings
            assert (given.lock_seconds, given.max_rows, given.watch_entries) == (3, 4, 250_000)
            trust(tb.store, read_layer(str(project), Level.PROJECT), person_here(tb.store))
        with takeback.open(store) as tb:
            assert tb.store.settings.watch_entries == 5
            assert tb.store.own_settings == {}
    finally:
        os.chdir(here)


def test_the_administrator_counts_more_than_the_store(store: Path, tmp_path: Path, user: Rules) -> None:
    file = tmp_path / "administrator.toml"
    file.write_text("[settings]\naudit_days = 183\n")
    tmp_path.chmod(0o755)
    with takeback.open(store) as tb:
        tb.store.keep_settings({"audit_days": 1})
    with takeback.open(store) as tb:
        read_settings(tb.store, administrator=str(file))
        assert tb.store.settings.audit_days == (183 if os.geteuid() == 0 else 1)


@pytest.mark.parametrize("text", ["x = [\n", "[settings]\naccepted_second = 1\n"])
def test_a_broken_file_gives_up_no_way_back(user: Rules, store: Path, world: World, text: str) -> None:
    """It may have said that ways back are kept longer than the default, or than the store says."""
    with takeback.open(store) as tb, tb.run("work") as run:
        effect = run.write(world / "a", b"1")
        assert effect
    with takeback.open(store) as tb:
        tb.accept(effect)
        tb.store.keep_settings({"accepted_seconds": 0})
    with takeback.open(store) as tb:
        assert [one.forget for one in tb.forget(dry_run=True)] == [True]
    user(text)

    with takeback.open(store) as tb:
        with pytest.raises(takeback.Misuse, match=r"What may be forgotten is not known: .*line"):
            tb.forget()
        tb.sweep(0)
        assert tb.undo(effect).effects and not tb.given_up
    assert not (world / "a").exists()


# settings.json moves.


def kept(place: SettingsTable) -> str:
    return Path(place.file).read_text() if os.path.exists(place.file) else ""


@pytest.fixture
def mine(tmp_path: Path) -> SettingsTable:
    return SettingsTable(str(tmp_path / "mine/takeback/config.toml"))


def test_settings_json_moves_with_comments_kept_and_the_same_counts(
    store: Path, mine: SettingsTable, user: Rules
) -> None:
    with takeback.open(store) as tb:
        tb.store.keep_settings({"audit_days": 183, "lock_seconds": 4})
    os.makedirs(os.path.dirname(mine.file))
    Path(mine.file).write_text("# mine\n[settings]\nmax_rows = 7 # few\n")

    assert move(str(store), mine) == mine

    assert kept(mine) == "# mine\n[settings]\nmax_rows = 7 # few\naudit_days = 183\nlock_seconds = 4\n"
    assert json.loads((store / MOVED).read_text())["audit_days"] == 183 and not waiting(str(store))
    assert os.stat(mine.file).st_mode & 0o777 == 0o600
    user(kept(mine))
    with takeback.open(store) as tb:
        given = tb.store.settings
        assert (given.audit_days, given.lock_seconds, given.max_rows) == (183, 4, 7)


def test_what_counts_for_other_stores_too_is_not_overwritten(store: Path, mine: SettingsTable) -> None:
    with takeback.open(store) as tb:
        tb.store.keep_settings({"audit_days": 183})
    os.makedirs(os.path.dirname(mine.file))
    Path(mine.file).write_text("[settings]\naudit_days = 9\n")

    assert move(str(store), mine) == mine._replace(store=str(store))

    given = layer_of(mine.file, Level.USER, Path(mine.file).read_bytes())
    assert in_force([given], str(store), {})["audit_days"].value == 183
    assert in_force([given], "/another", {})["audit_days"].value == 9


@pytest.mark.parametrize("at", ["before the values", "before the name"])
def test_killed_in_between_the_same_counts_and_the_next_one_ends_it(
    store: Path, mine: SettingsTable, at: str, monkeypatch: pytest.MonkeyPatch, user: Rules
) -> None:
    with takeback.open(store) as tb:
        tb.store.keep_settings({"audit_days": 183})
    ends = mine.file if at == "before the values" else str(store / MOVED)
    real = disk.rename

    def dies(old: str, new: str) -> None:
        if new == ends:
            raise ResourceUnreachable("killed")
        real(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "rename", dies)
        with pytest.raises(ResourceUnreachable):
            move(str(store), mine)
    user(kept(mine))
    with takeback.open(store) as tb:
        assert tb.store.settings.audit_days == 183

    assert move(str(store), mine) == mine
    user(kept(mine))
    with takeback.open(store) as tb:
        assert tb.store.settings.audit_days == 183 and tb.store.own_settings == {}


def test_a_settings_json_that_is_wrong_is_not_moved(store: Path, mine: SettingsTable) -> None:
    with takeback.open(store):
        pass
    (store / "settings.json").write_text('{"audit_dayz": 1}')
    with pytest.raises(takeback.Misuse, match="audit_dayz"):
        move(str(store), mine)
    assert kept(mine) == "" and waiting(str(store))


def test_a_link_to_the_file_stays_one_and_a_projects_file_keeps_its_mode(tmp_path: Path) -> None:
    from takeback.runs.settings_change import change

    target = tmp_path / "dotfiles.toml"
    target.write_text("# all\n")
    target.chmod(0o640)
    (tmp_path / "takeback.toml").symlink_to(target)

    change(SettingsTable(str(tmp_path / "takeback.toml"), of_project=True), {"max_rows": 3})

    assert (tmp_path / "takeback.toml").is_symlink() and target.stat().st_mode & 0o777 == 0o640
    assert target.read_text().startswith("# all\n") and "max_rows = 3" in target.read_text()


def test_a_file_that_is_no_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[settings]\nx = \n")
    with pytest.raises(takeback.Misuse, match=r"c.toml, line 2, column \d+"):
        changed(SettingsTable(str(tmp_path / "c.toml")), {"max_rows": 1})


def test_a_copy_of_a_store_takes_only_its_own_settings_along(
    user: Rules, store: Path, tmp_path: Path
) -> None:
    user("[settings]\nmax_rows = 7\n")
    with takeback.open(store) as tb:
        tb.store.keep_settings({"audit_days": 183})
    with takeback.open(store) as tb:
        tb.copy_to(str(tmp_path / "copy"))
    assert json.loads((tmp_path / "copy/settings.json").read_text()) == {"audit_days": 183}


def test_what_only_a_person_may_do_is_refused_below_an_agent_in_python_too(
    store: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with takeback.open(store) as tb:
        with tb.run("work", agent="eve") as run:
            effect = run.write(world / "a", b"1")
            assert effect
            tb.pin(effect)  # a program that has a run of its own open may
            tb.unpin(effect)
        monkeypatch.setenv("CLAUDECODE", "1")
        refused: dict[str, Callable[[], object]] = {
            "forget": tb.forget, "sweep": tb.sweep, "pin": lambda: tb.pin(effect), "unpin": lambda: tb.unpin(effect),
        }  # fmt: skip
        for name, does in refused.items():
            with pytest.raises(takeback.Refused, match=rf"tb\.{name} is for a person, and Claude Code"):
                does()
        tb.forget(dry_run=True)
        tb.sweep(dry_run=True)
        tb.pin(effect, dry_run=True)
        tb.accept(effect)
        with tb.run("more", agent="eve") as run:  # its end keeps the store in order
            held = run.write(world / "b", b"1")
        assert held and opened_of(tb).effect(held.id)


def test_a_held_change_is_discarded_by_its_run_and_not_below_an_agent(
    store: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    (world / "takeback.toml").write_text('[[rule]]\nname = "held"\nmatch = {path = "a"}\nthen = "hold"\n')
    with takeback.open(store) as tb, tb.run("work", agent="eve") as run:
        with pytest.raises(takeback.TakebackError) as said:
            run.write(world / "a", b"1")
        id = said.value.effect or ""
        with pytest.raises(takeback.Refused, match=r"tb\.discard is for a person"):
            tb.discard(id)
        run.discard(id)
        assert tb.effect(id).state.value in ("dropped", "aborted")
