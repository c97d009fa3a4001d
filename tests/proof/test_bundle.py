"""A bundle is checked by a bare Python in an empty directory; it says what it checked, and what was changed."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.api import opened_of, proof
from takeback.audit import keys
from takeback.audit.export import BundleWish, Exported, export
from takeback.audit.figures import bars_svg, figures, waits_in_groups
from takeback.audit.page import safe
from takeback.model.record import canonical
from takeback.policy.secrets import masked_json, may_hold_secret
from tests.secret_table import SHAPES

# The system's own, so that nothing of ours can be imported; -I -S: no user's directory, no site-packages.
BARE = ["/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3", "-I", "-S", "-B"]
SECRET = "ghp_" + "a1B2" * 9


@takeback.action
def charge(customer: str, *, key: str) -> dict[str, Any]:
    return {"id": 7}


@charge.undo
def refund(receipt: dict[str, Any], customer: str) -> None: ...


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with effects, an undo, a call, a secret and two anchors."""
    place = tmp_path_factory.mktemp("bundle")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place / "state"))
        keys.make(os.fspath(place / "audit.key"), os.fspath(place / "store"))
        with takeback.open(place / "store") as tb:
            for number in range(2):
                with tb.run("first", agent="ann") as run:
                    run.write(place / "a.txt", f"{number}\n")
                    run.write(place / "b.txt", f"{number}\n")
                    run.call(charge, customer=f"c{number} token={SECRET}")
                tb.undo(tb.effects(path=place / "a.txt")[-1])
                proof.anchor(opened_of(tb), f"file:{place / 'anchors'}", key=os.fspath(place / "audit.key"))
    return place


Exporting = Callable[..., Exported]


@pytest.fixture
def exported(made: Path, monkeypatch: pytest.MonkeyPatch) -> Exporting:
    monkeypatch.setenv("XDG_STATE_HOME", str(made / "state"))

    def exported(target: Path, **wishes: Any) -> Exported:
        with takeback.open(made / "store", recover=False) as tb:
            look = proof.check_anchors(opened_of(tb), keys=[f"{made / 'audit.key'}.pub"])
            level = proof.proof_level(opened_of(tb), look)
            return export(tb.store, look, level, BundleWish(os.fspath(target), **wishes))

    return exported


def checked(bundle: Path, *words: object) -> tuple[int, str]:
    done = subprocess.run(
        [*BARE, os.fspath(bundle / "verify.py"), *map(str, words)],
        cwd=bundle.parent, capture_output=True, text=True, check=False, timeout=60, env={},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_is_checked_by_a_bare_python_in_an_empty_directory(
    exported: Exporting, made: Path, tmp_path: Path
) -> None:
    exported(tmp_path / "evidence.tar.gz")
    empty = tmp_path / "empty"
    empty.mkdir()
    with tarfile.open(tmp_path / "evidence.tar.gz") as archive:
        archive.extractall(empty, filter="data")

    code, said = checked(
        empty / "takeback-evidence", "--key", f"{made}/audit.key.pub", "--anchors", made / "anchors"
    )

    assert (code, said.splitlines()[-1]) == (0, "Sound.")
    for line in (
        "Files: 7, compared",
        "hashed again",
        "Anchors: 2 fit",
        "Signatures: Ed25519, checked by this file",
    ):
        assert line in said
    assert "No one vouches" not in said
    assert "only anchors from inside" not in said
    assert "No one vouches" in checked(empty / "takeback-evidence")[1]


def test_the_same_journal_gives_the_same_bytes(exported: Exporting, tmp_path: Path) -> None:
    exported(tmp_path / "one.tar.gz")
    made = exported(tmp_path / "other.tar.gz")

    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "other.tar.gz").read_bytes()
    there = exported(tmp_path / "directory")
    assert (
        there.digest
        == made.digest
        == hashlib.sha256((tmp_path / "directory/manifest.json").read_bytes()).hexdigest()
    )


def _edit(bundle: Path, name: str, change: Callable[[str], str], again: bool = True) -> None:
    """As whoever hands over a bundle can: the manifest is made to fit."""
    file = bundle / name
    file.write_text(change(file.read_text()))
    if again:
        manifest = json.loads((bundle / "manifest.json").read_text())
        manifest["files"][name] = hashlib.sha256(file.read_bytes()).hexdigest()
        (bundle / "manifest.json").write_text(json.dumps(manifest))


def _line(number: int, change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def edited(text: str) -> str:
        lines = [json.loads(one) for one in text.splitlines()]
        change(lines[number])
        return "".join(json.dumps(one) + "\n" for one in lines)

    return edited


def _without(number: int) -> Callable[[str], str]:
    def cut(text: str) -> str:
        lines = text.splitlines(True)
        return "".join((*lines[:number], *lines[number + 1 :]))

    return cut


def _cut(text: str) -> str:
    return "".join(text.splitlines(True)[:-4])


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("records.jsonl", _line(4, lambda one: one.update(at=1)), "Record 5 ("),
        ("records.jsonl", _line(4, lambda one: one.update(body={"x": 1})), "Record 5 ("),
        ("records.jsonl", _without(9), "Record 10 is missing"),
        ("records.jsonl", _cut, "The journal was cut or rolled back"),
        ("anchors.jsonl", _line(1, lambda one: one.update(seq=3)), "its signature does not fit"),
        ("anchors.jsonl", _without(0), "The anchors before 2 were not given."),
    ],
    ids=["time", "body", "deleted", "cut", "forged anchor", "first anchor left out"],
)
def test_what_was_changed_in_it_is_found(
    exported: Exporting, made: Path, tmp_path: Path, name: str, change: Callable[[str], str], says: str
) -> None:
    exported(tmp_path / "evidence")
    assert checked(tmp_path / "evidence")[0] == 0

    _edit(tmp_path / "evidence", name, change)

    code, said = checked(tmp_path / "evidence", "--key", f"{made}/audit.key.pub")
    assert (code, says in said) == (0 if "not given" in says else 6, True), said


@pytest.mark.parametrize("name", ["report.html", "answers.json", "records.jsonl", "README.txt"])
def test_a_file_that_is_not_as_in_the_manifest_is_named(
    exported: Exporting, tmp_path: Path, name: str
) -> None:
    exported(tmp_path / "evidence")
    _edit(tmp_path / "evidence", name, lambda text: text + " ", again=False)

    code, said = checked(tmp_path / "evidence")
    assert (code, f"damaged: {name} is not as it was exported." in said) == (6, True)


def test_a_blob_that_was_exchanged_is_named(exported: Exporting, tmp_path: Path) -> None:
    made = exported(tmp_path / "evidence", with_content=True)
    assert made.blobs > 0
    blob = next((tmp_path / "evidence" / "blobs").rglob("??*/*"))
    assert blob.name == hashlib.sha256(blob.read_bytes()).hexdigest()
    blob.write_bytes(b"other")
    manifest = json.loads((tmp_path / "evidence/manifest.json").read_text())
    manifest["files"][f"blobs/{blob.parent.name}/{blob.name}"] = hashlib.sha256(b"other").hexdigest()
    (tmp_path / "evidence/manifest.json").write_text(json.dumps(manifest))

    code, said = checked(tmp_path / "evidence")
    assert (code, f"{blob.name} is not the content of that digest" in said) == (6, True)


def test_no_secret_leaves_the_store_and_the_chain_still_verifies(exported: Exporting, tmp_path: Path) -> None:
    exported(tmp_path / "evidence")
    kept = b"".join(file.read_bytes() for file in (tmp_path / "evidence").rglob("*") if file.is_file())

    assert SECRET.encode() not in kept
    assert b"commitment" in kept
    code, said = checked(tmp_path / "evidence")
    assert (code, "hashed again" in said) == (0, True)

    exported(tmp_path / "whole", with_content=True)
    assert SECRET.encode() in (tmp_path / "whole/records.jsonl").read_bytes()
    assert checked(tmp_path / "whole")[0] == 0


def test_each_question_has_its_section_and_nothing_comes_from_elsewhere(
    exported: Exporting, tmp_path: Path
) -> None:
    exported(tmp_path / "evidence")
    page = (tmp_path / "evidence/report.html").read_text()
    answers = json.loads((tmp_path / "evidence/answers.json").read_text())

    assert re.findall(r"<h2>(\d+)\.", page) == [str(number) for number in range(1, 13)]
    assert page.count("<svg") == 4
    assert not re.search(r"<script|<link|<img|@import|url\(|src=|href=", page)
    assert len(answers["undone"]) == 2
    assert answers["undone"][0]["verified"]
    assert ["ann", 2] in answers["agents"]
    assert answers["proof"]["level"] == 1
    assert len(answers["sample"]) == 8
    assert answers["sample"][0]["records"]


def test_it_overwrites_nothing_and_leaves_nothing_half_made(
    exported: Exporting, made: Path, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(takeback.errors.Refused, match="already"):
        exported(tmp_path / "there")
    with pytest.raises(takeback.errors.Refused, match="in the store"):
        exported(made / "store" / "evidence")
    with pytest.raises(takeback.errors.ResourceUnreachable):
        exported(tmp_path / "no" / "such" / "place")
    assert [one.name for one in tmp_path.iterdir()] == ["there"]
    shutil.rmtree(tmp_path / "there")


def test_names_of_anyone_are_text_on_the_page() -> None:
    assert safe('<b onload="x">\x1b[31m\u202e\n') == "&lt;b onload=&quot;x&quot;&gt;\\u001b[31m\\u202e\n"


def test_a_plot_of_nothing_and_of_one_thing_is_a_picture() -> None:
    assert figures(()).bars == ()
    assert bars_svg("t", []).startswith("<svg")
    assert bars_svg("<t>", [("<a>", [("actions", 3)])]).count("<rect") == 1
    assert "<a>" not in bars_svg("<t>", [("<a>", [("actions", 3)])])
    assert dict(waits_in_groups((5, 70, 100_000)))["over 1 day"] == [("answers", 1)]


@pytest.mark.parametrize(
    "around", [{}, {"key": "", "resource": "file:///home/you/a"}], ids=["alone", "in a record"]
)
def test_the_quick_look_for_secrets_passes_over_none_of_200_shapes(around: dict[str, Any]) -> None:
    for text in (case.text for case in SHAPES):
        for body in ({"summary": text}, {"args": {"lines": text.split("\n")}}):
            given: dict[str, Any] = {**around, **body}
            if masked_json(given) != given:
                assert may_hold_secret(canonical(given).decode())
    assert not may_hold_secret(canonical({**around, "summary": "write src/app.py"}).decode())
