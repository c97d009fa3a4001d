"""Where anchors go, who can change them there, and the key that signs them."""

import json
import os
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import takeback
from takeback import Takeback
from takeback.api import opened_of, proof
from takeback.audit import keys
from takeback.audit.anchor_places import agent_changes, line_of, place_named
from takeback.audit.anchors import AnchorCheck, Anchored
from takeback.audit.keys import changes
from takeback.audit.verifier import MARK, digest_of, listed
from takeback.errors import Misuse, Refused
from tests.proof.authority import Authority, serving
from tests.proof.ledger import recorded

SOMEONE = 12345  # a uid that no one has


@pytest.fixture
def key(tmp_path: Path, store: Path) -> str:
    path = os.fspath(tmp_path / "keys" / "audit.key")
    keys.make(path, os.fspath(store))
    return path


@pytest.fixture
def tb(store: Path) -> Iterator[Takeback]:
    with takeback.open(store) as tb:
        recorded(tb, 3, 0)
        yield tb


@pytest.fixture
def anchor(tb: Takeback, key: str) -> Callable[..., Anchored]:
    def anchor(*places: str) -> Anchored:
        recorded(tb, 2, 1)
        return proof.anchor(opened_of(tb), *places, key=key)

    return anchor


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Authority]:
    (tmp_path / "ca").mkdir()
    with serving(tmp_path / "ca") as found:
        yield found


def verified(tb: Takeback, key: str, *places: str, authority: str = "") -> AnchorCheck:
    return proof.check_anchors(opened_of(tb), *places, keys=[f"{key}.pub"], authority=authority)


# Places.


def test_a_git_repository_has_a_commit_for_each_anchor_and_its_work_is_left_alone(
    tb: Takeback, key: str, anchor: Callable[..., Anchored], tmp_path: Path
) -> None:
    place = tmp_path / "repository"
    git = ["git", "-C", os.fspath(place)]
    subprocess.run(["git", "init", "-q", place], check=True)
    (place / "mine").write_text("not committed")
    subprocess.run([*git, "add", "mine"], check=True)
    hook = place / ".git" / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\n")
    hook.chmod(0o755)

    anchor(f"git:{place}")
    anchor(f"git:{place}")

    log = subprocess.run(
        [*git, "log", "--format=%s", "takeback-anchors"], check=True, capture_output=True, text=True
    )
    assert log.stdout.splitlines() == ["anchor 2: 8 records", "anchor 1: 5 records"]
    status = subprocess.run([*git, "status", "--porcelain"], check=True, capture_output=True, text=True)
    assert status.stdout == "A  mine\n"
    assert not (tmp_path / "hook-ran").exists()
    look = verified(tb, key, f"git:{place}")
    assert look.sound
    assert look.places[0].anchors == 2


def test_another_store_keeps_them_as_records(
    tb: Takeback, key: str, anchor: Callable[..., Anchored], tmp_path: Path
) -> None:
    other = os.fspath(tmp_path / "other")
    takeback.open(other).close()

    made = anchor(f"store:{other}")

    assert made.places == (f"store:{other}",)
    look = verified(tb, key, f"store:{other}")
    assert look.sound
    assert look.places[0].newest == made.anchor


def test_syslog_gets_a_line_that_can_be_compared_from_the_log(
    tb: Takeback, key: str, anchor: Callable[..., Anchored], tmp_path: Path
) -> None:
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(os.fspath(tmp_path / "log"))

    made = anchor(f"syslog:{tmp_path / 'log'}")

    line = heard.recv(1 << 16).decode()
    heard.close()
    assert line.startswith(f"<86>takeback: {MARK}")
    messages = tmp_path / "messages"
    messages.write_text(
        f"Nov 18 10:00:00 host sshd: hello\nNov 18 10:00:01 host {line[4:]}\nNov 18 host cron: bye\n"
    )
    look = verified(tb, key, f"file:{messages}")
    assert look.sound
    assert look.places[0].newest == made.anchor
    assert look.places[0].anchors == 1


def test_a_time_stamp_is_asked_for_and_checked(
    tb: Takeback, key: str, anchor: Callable[..., Anchored], tmp_path: Path, authority: Authority
) -> None:
    place = f"file:{tmp_path / 'anchors'}"
    made = anchor(place, f"tsa:{authority.url}")

    assert made.failed == ()
    assert verified(tb, key, place).stamp_words.startswith("1 time stamps were not checked")
    look = verified(tb, key, place, authority=os.fspath(authority.certificate))
    assert (look.sound, look.stamps) == (True, 1)

    # The stamp of one anchor under another does not fit.
    second = anchor(place).anchor
    lines = [json.loads(one) for one in (tmp_path / "anchors").read_text().splitlines()]
    lines[1]["stamps"] = lines[0]["stamps"]
    (tmp_path / "anchors").write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert digest_of(second) != digest_of(made.anchor)
    (told,) = verified(tb, key, place, authority=os.fspath(authority.certificate)).judgement.findings
    assert (told.what, "on anchor 2 does not fit" in told.text) == ("time stamp", True)


def test_a_place_that_cannot_be_reached_costs_none_of_the_others(
    tb: Takeback, key: str, anchor: Callable[..., Anchored], tmp_path: Path
) -> None:
    made = anchor(
        "tsa:http://127.0.0.1:9/", f"git:{tmp_path / 'no-repository'}", f"file:{tmp_path / 'anchors'}"
    )

    assert made.places == (f"file:{tmp_path / 'anchors'}",)
    assert [place.partition(":")[0] for place, _ in made.failed] == ["tsa", "git"]
    assert verified(tb, key, f"file:{tmp_path / 'anchors'}").sound
    assert anchor(f"file:{tmp_path / 'anchors'}").anchor.number == 2


def test_nothing_new_is_not_anchored_again(tb: Takeback, key: str, anchor: Callable[..., Anchored]) -> None:
    first = anchor()
    again = proof.anchor(opened_of(tb), key=key)

    assert (again.is_new, again.anchor) == (False, first.anchor)


def test_a_line_that_a_killed_writer_left_is_no_anchor_and_no_obstacle(
    tb: Takeback, key: str, anchor: Callable[..., Anchored], tmp_path: Path
) -> None:
    place = tmp_path / "anchors"
    first = anchor(f"file:{place}").anchor
    with place.open("a") as file:
        file.write(line_of(first)[:100])

    assert verified(tb, key, f"file:{place}").sound
    assert anchor(f"file:{place}").places == (f"file:{place}",)
    told = verified(tb, key, f"file:{place}")
    assert told.sound
    assert "Line 2 of" in told.judgement.notes[0]
    assert told.newest
    assert told.newest.number == 2
    assert anchor(f"file:{place}").anchor.number == 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [("anchors", "file:{here}/anchors"), ("git:~/a.git", "git:{home}/a.git"), ("tsa:http://a/b", "tsa:http://a/b"),
     ("syslog://log.example:514", "syslog://log.example:514"), ("store:postgresql://h/a", "store:postgresql://h/a")],
)  # fmt: skip
def test_a_place_is_named_in_one_way(
    text: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(place_named(text)) == shown.format(here=tmp_path, home=os.environ["HOME"])


def test_who_can_change_what_is_kept_is_told_by_owner_and_mode_of_all_that_is_above_it(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "kept" / "anchors"
    kept.parent.mkdir(mode=0o755)
    kept.write_text("")
    for one in (kept, kept.parent):
        os.chown(one, 0, 0) if os.geteuid() == 0 else None
    alone = os.geteuid() == 0 and all(
        not stat.S_IMODE(one.stat().st_mode) & 0o022 for one in (kept, *kept.parents) if one != Path("/tmp")
    )

    assert changes(os.fspath(kept), os.geteuid())
    if alone:
        assert not changes(os.fspath(kept), SOMEONE)
    kept.parent.chmod(0o777)
    assert changes(os.fspath(kept), SOMEONE)
    kept.parent.chmod(0o1777)
    assert changes(os.fspath(kept), SOMEONE) == (not alone)
    kept.chmod(0o666)
    assert changes(os.fspath(kept), SOMEONE)
    assert not agent_changes(place_named("syslog://elsewhere"), SOMEONE)
    assert agent_changes(place_named("tsa:http://elsewhere"), SOMEONE)


# The key.


def test_a_key_is_private_and_its_public_half_is_not(key: str) -> None:
    assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(f"{key}.pub").st_mode) == 0o644
    assert keys.signer(key).key == keys.public_of(f"{key}.pub") == keys.public_of(key)


def test_a_key_is_never_overwritten_and_never_lies_where_agents_work(
    key: str, store: Path, tmp_path: Path
) -> None:
    before = Path(key).read_bytes()
    with pytest.raises(Refused, match="never overwritten"):
        keys.make(key, os.fspath(store))
    assert Path(key).read_bytes() == before
    with pytest.raises(Refused, match="lies in the store"):
        keys.make(os.fspath(store / "audit.key"), os.fspath(store))
    (tmp_path / "project" / ".git").mkdir(parents=True)
    with pytest.raises(Refused, match="lies in the project"):
        keys.make(os.fspath(tmp_path / "project" / "deep" / "audit.key"), os.fspath(store))
    assert not (tmp_path / "project" / "deep").exists()


def test_a_key_that_others_can_read_does_not_sign(key: str, anchor: Callable[..., Anchored]) -> None:
    os.chmod(key, 0o640)
    with pytest.raises(Refused, match="open to others"):
        anchor()


def test_who_can_read_the_key_is_said(key: str) -> None:
    assert keys.reach(key, os.geteuid()).agent_reads
    assert not keys.reach(key, SOMEONE).agent_reads
    os.chmod(key, 0o604)
    assert keys.reach(key, SOMEONE).agent_reads
    assert "cannot see the private half" in keys.reach("/nonexistent/key", SOMEONE).words


def test_another_user_signs_what_this_one_states_and_never_what_goes_back(
    tb: Takeback, key: str, tmp_path: Path
) -> None:
    copy = f"file:{tmp_path / 'kept-by-the-signer'}"
    old = proof.statement(opened_of(tb), key=f"{key}.pub")
    recorded(tb, 4, 2)
    stated = proof.statement(opened_of(tb), key=f"{key}.pub")
    signed = proof.signed_here(stated, [copy], key)
    made = proof.keep_signed(opened_of(tb), signed, f"file:{tmp_path / 'anchors'}")

    assert made.anchor == signed
    assert verified(tb, key, copy).sound
    with pytest.raises(Refused, match="was cut or rolled back"):
        proof.signed_here(old, [copy], key)
    with pytest.raises(Misuse, match="signature"):
        proof.keep_signed(opened_of(tb), signed._replace(seq=1))


def test_an_anchor_in_a_list_that_is_none_is_named_by_its_line() -> None:
    found = listed("a", '{"takeback":"anchor 1"}\nnot json\n')
    assert [one.partition(" is no anchor")[0] for one in found.unreadable] == ["Line 1 of a", "Line 2 of a"]
