"""`takeback config`: what counts and why, changed with comments kept, by people only."""

import json
import os
from pathlib import Path

import pytest

from tests.e2e.conftest import CommandLine


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the user, and the store is the usual one."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TAKEBACK_STORE", raising=False)
    return tmp_path / "configuration/takeback/config.toml"


def test_a_setting_is_set_with_comments_kept_and_said_with_what_sets_it(
    takeback: CommandLine, file: Path
) -> None:
    assert takeback.done("config", "set", "audit_days", "183").out == f"audit_days = 183  ({file}, line 2)\n"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.write_text("# ours\n[settings]\naudit_days = 183 # law\n")
    takeback.done("config", "set", "lock_seconds", "3")
    assert file.read_text() == "# ours\n[settings]\naudit_days = 183 # law\nlock_seconds = 3\n"

    told = takeback.done("config", "list", "--json").json["settings"]
    by_name = {one["name"]: one for one in told}
    assert by_name["lock_seconds"] | {"name": ""} == {
        "name": "", "value": 3, "set_by": "file", "file": str(file), "line": 4,
    }  # fmt: skip
    assert (by_name["max_rows"]["value"], by_name["max_rows"]["set_by"]) == (1_000_000, "default")
    assert takeback.done("config", "unset", "audit_days").out == "audit_days = 7  (default)\n"
    assert file.read_text() == "# ours\n[settings]\nlock_seconds = 3\n"


@pytest.mark.slow
def test_the_report_says_what_was_set_and_a_dry_run_removes_nothing(
    takeback: CommandLine, file: Path
) -> None:
    takeback.done("config", "set", "audit_days", "183")
    takeback.done("write", "a", input="1")
    assert takeback.done("audit", "log", "--retention").out.endswith("audit_days is 183.\n")
    assert takeback.done("config", "unset", "audit_days", "--dry-run").out.startswith(
        "Would remove audit_days"
    )
    takeback.done("config", "unset", "audit_days")
    assert "is not set in" in takeback.done("config", "unset", "audit_days").out


@pytest.mark.slow
def test_a_store_elsewhere_has_a_section_of_its_own(
    takeback: CommandLine, file: Path, tmp_path: Path
) -> None:
    other = str(tmp_path / "other")
    takeback.done("config", "set", "max_rows", "5", "--store", other)
    assert file.read_text() == f'[stores."{other}".settings]\nmax_rows = 5\n'
    told = takeback.done("config", "get", "max_rows", "--store", other, "--json").json
    assert (told["value"], told["line"]) == (5, 2)
    assert takeback.done("config", "get", "max_rows", "--json").json["value"] == 1_000_000


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (("set", "audit_dayz", "3"), "no setting 'audit_dayz'", "`audit_days`"),
        (("set", "audit_days", "x"), "whole number, not 'x'", "Seconds"),
        (("set", "audit_days", "9" * 20), "is more than", "smaller"),
        (("set", "retention", "tiny"), "no retention 'tiny'", "small"),
        (("set", "store_bytes", "3", "--project"), "nothing that a project decides", "max_rows"),
        (("get", "nothing"), "no setting 'nothing'", "accepted_seconds"),
        (("unset", "nothing"), "no setting 'nothing'", "accepted_seconds"),
    ],
)
@pytest.mark.sampled(2)
def test_what_is_wrong_is_one_sentence_and_changes_nothing(
    takeback: CommandLine, file: Path, words: tuple[str, ...], said: str, hint: str
) -> None:
    answer = takeback("config", *words)
    error, told = answer.err.splitlines()
    assert (answer.code, file.exists()) == (2, False)
    assert said in error and hint in told


def test_an_agent_may_look_and_not_change(takeback: CommandLine, file: Path) -> None:
    refused = takeback("config", "set", "audit_days", "1", CLAUDECODE="1")
    assert refused.code == 3 and "`takeback config set` is for a person" in refused.err
    assert takeback("config", "get", "audit_days", CLAUDECODE="1").code == 0
    assert not file.exists()


@pytest.mark.slow
def test_settings_json_moves_with_the_first_change_and_never_with_a_look(
    takeback: CommandLine, file: Path
) -> None:
    takeback.write("a", "1")
    store = Path(takeback.done("status", "--json").json["store"])
    (store / "settings.json").write_text(json.dumps({"audit_days": 183}))
    looked = takeback.done("config", "get", "audit_days")
    assert looked.out == f"audit_days = 183  ({store}/settings.json)\n"
    takeback.done("config", "set", "max_rows", "5", "--dry-run")
    assert (store / "settings.json").exists() and not file.exists()

    moved = takeback.done("config", "set", "max_rows", "5", "--json").json

    assert moved["moved"] == "[settings]"
    assert file.read_text() == "[settings]\naudit_days = 183\nmax_rows = 5\n"
    assert sorted(one.name for one in store.glob("settings*")) == ["settings.json.moved"]
    takeback.done("config", "set", "audit_days", "20")
    assert takeback.done("config", "get", "audit_days", "--json").json["value"] == 20


@pytest.mark.slow
def test_a_directory_that_is_no_store_keeps_its_settings_json(
    takeback: CommandLine, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "editor").mkdir(mode=0o700)
    (tmp_path / "editor/settings.json").write_text('{"theme": "dark"}')
    assert takeback("config", "set", "max_rows", "5", "--store", tmp_path / "editor").code == 2
    assert os.listdir(tmp_path / "editor") == ["settings.json"] and not file.exists()


@pytest.mark.slow
def test_a_broken_file_stops_no_look_and_can_be_mended(takeback: CommandLine, file: Path) -> None:
    takeback.done("config", "set", "audit_days", "9")
    file.write_text("[settings]\naudit_dayz = 9\n")
    looked = takeback.done("config", "list", "--json").json
    assert "line 1" in looked["troubles"][0] and "audit_dayz" in looked["troubles"][0]
    assert takeback("write", "a", input="1").code == 2
    takeback.done("config", "unset", "audit_dayz")
    takeback.done("write", "a", input="1")
    file.write_text("x = [\n")
    refused = takeback("config", "set", "audit_days", "9")
    assert refused.code == 2 and "config.toml, line" in refused.err


@pytest.mark.slow
def test_what_a_project_sets_counts_once_a_person_trusted_it(takeback: CommandLine, file: Path) -> None:
    takeback.write("a", "1")
    said = takeback.done("config", "set", "max_rows", "5", "--project")
    assert "max_rows = 1000000  (default)" in said.out and "no person trusted it" in said.out
    takeback.done("policy", "trust")
    told = takeback.done("config", "get", "max_rows", "--json").json
    assert (told["value"], Path(told["file"]).name) == (5, "takeback.toml")
