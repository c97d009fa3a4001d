"""`takeback audit` as a user types it: exit codes, JSON, and one sentence where something is wrong."""

import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.e2e.conftest import CommandLine
from tests.proof.ledger import on_disk


@pytest.fixture
def takeback(tmp_path: Path) -> CommandLine:
    (tmp_path / "work").mkdir()
    return CommandLine(os.fspath(tmp_path / "work"))


@pytest.fixture
def anchors(tmp_path: Path) -> str:
    return f"file:{tmp_path / 'anchors'}"


def test_a_journal_is_anchored_verified_cut_and_found_out(
    takeback: CommandLine, anchors: str, store: Path, tmp_path: Path
) -> None:
    takeback.write("a.txt", "1\n")
    assert takeback("audit", "anchor").err.startswith("error: There is no key to sign with.")
    made = takeback.done("audit", "key", "new", "--json").json
    assert made["path"].startswith(os.environ["HOME"])
    assert "the agent's user can read it" in takeback.done("audit", "key", "show").out
    first = takeback.done("audit", "anchor", "--to", anchors, "--by", "bea").out
    assert first.startswith("Anchor 1 signed: 3 records.")
    takeback.write("b.txt", "1\n")
    assert takeback.done("audit", "anchor", "--to", anchors, "--json").json["anchor"]["number"] == 2
    assert takeback.done("audit", "anchor").out.startswith("Nothing was recorded since anchor 2")
    told = takeback.done("audit", "verify", "--json").json
    assert (told["sound"], told["level"], len(told["anchors"])) == (True, 1, 2)
    report = takeback.done("audit", "report").out
    assert "Level 1 of 3" in report
    assert "an agent could rewrite the journal and sign it" in report

    ledger = on_disk(store, tmp_path)
    ledger.change(lambda rows: rows[:5])

    said = takeback("audit", "verify")
    assert said.code == 6
    assert "the journal ends with record 5" in said.out
    assert "The journal is not what was recorded" in said.err
    assert takeback("audit", "verify", "--json").json["error"]["exit_code"] == 6
    assert takeback("audit", "anchor", "--to", anchors).code == 6
    assert takeback("audit", "report").code == 6


def test_looking_changes_nothing_and_a_dry_run_signs_nothing(
    takeback: CommandLine, anchors: str, store: Path
) -> None:
    takeback.write("a.txt", "1\n")
    takeback.done("audit", "key", "new")
    before = (store / "journal.db").read_bytes()

    takeback.done("audit", "anchor", "--dry-run", "--to", anchors)
    takeback.done("audit", "verify", "--anchor", anchors)
    takeback.done("audit", "export", "evidence", "--dry-run")
    for words in (["log"], ["log", "--undone"], ["log", "--sample", "3", "--json"], ["report"]):
        takeback.done("audit", *words)

    assert (store / "journal.db").read_bytes() == before
    assert not Path(anchors.removeprefix("file:")).exists()
    assert not Path(takeback.directory, "evidence").exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["verify", "--key", "no-such.pub"], 2, "is no Ed25519 public key"),
        (["verify", "--anchor", "git:"], 2, "names no place for anchors"),
        (["verify", "--anchor", "git:."], 5, "git in "),
        (["anchor", "--key", "no-such.key"], 2, "There is no key no-such.key"),
        (["anchor", "--signed", "no-such.json"], 2, "cannot be read"),
        (["log", "--undone", "--unknown"], 2, "are two questions"),
        (["log", "--since", "yesterweek"], 2, "is not a time"),
        (["log", "--why", "zzzzzzzz"], 2, "zzzzzzzz"),
        (["key", "new", "--out", "x.key"], 3, "lies in the project"),
        (["export", "."], 3, "There is something at . already"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    takeback: CommandLine, words: list[str], code: int, says: str
) -> None:
    Path(takeback.directory, ".takeback").mkdir()
    takeback.write("a.txt", "1\n")

    said = takeback("audit", *words)

    assert (said.code, says in said.err) == (code, True), said


def test_what_this_user_states_another_one_signs(takeback: CommandLine, tmp_path: Path) -> None:
    """Words of the guide: stated here, signed there, recorded here."""
    takeback.write("a.txt", "1\n")
    key = os.fspath(tmp_path / "signer" / "audit.key")
    takeback.done("audit", "key", "new", "--out", key)
    stated = takeback.done("audit", "anchor", "--print").out
    kept_by_signer = f"file:{tmp_path / 'signer' / 'kept'}"
    signed = takeback.done("audit", "key", "sign", "--key", key, "--to", kept_by_signer, input=stated)
    said = takeback.done("audit", "anchor", "--signed", "-", input=signed.out)

    assert said.out.startswith("Anchor 1 signed")
    kept = json.loads((tmp_path / "signer" / "kept").read_text())
    assert kept["signature"] == json.loads(signed.out)["signature"]
    assert takeback.done("audit", "verify", "--key", f"{key}.pub").out.startswith("Sound")


def test_what_is_set_up_needs_no_option(takeback: CommandLine, anchors: str, tmp_path: Path) -> None:
    takeback.write("a.txt", "1\n")
    key = tmp_path / "keys" / "audit.key"
    takeback.done("audit", "key", "new", "--out", key)
    config = Path(os.environ["HOME"], ".config", "takeback", "config.toml")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f'[audit]\nkey = "{key}"\nanchors = ["{anchors}"]\n')

    assert takeback.done("audit", "anchor").out.splitlines()[1].strip() == anchors
    assert len(takeback.done("audit", "verify", "--json").json["places"]) == 1
    config.write_text('[audit]\nanchor = "x"\n')
    said = takeback("audit", "verify")
    assert (said.code, "has a wrong anchor" in said.err) == (2, True)


def test_a_bundle_is_made_and_checked(takeback: CommandLine, tmp_path: Path) -> None:
    takeback.write("a.txt", "1\n")
    made = takeback.done("audit", "export", tmp_path / "evidence.tar.gz", "--json").json
    with tarfile.open(tmp_path / "evidence.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    done = subprocess.run(
        ["python3", "-I", tmp_path / "takeback-evidence" / "verify.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert made["records"] == 3
    assert done.stdout.endswith("Sound.\n")
    assert "Anchors: none that fit" in done.stdout
