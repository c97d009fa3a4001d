"""The unified diff, held against the one that everybody knows."""

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from takeback.audit.diff import difference, quoted, unified
from takeback.errors import Misuse
from takeback.model.change import Change
from takeback.model.effect import Effect, State
from takeback.model.remedy import Remedy, Strategy, Target

LINES = st.lists(st.sampled_from([b"a", b"b", b"c", b"", b"\r", b"\xff x"]), max_size=30)


def text(lines: Iterable[bytes], ends: bool) -> bytes:
    return b"\n".join(lines) + (b"\n" if ends else b"")


def joined(old: bytes, new: bytes) -> bytes:
    return b"".join(line + b"\n" for line in unified(old, new, b"a/f", b"b/f"))


@pytest.mark.needs("patch")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES, LINES, st.booleans(), st.booleans())
def test_patch_turns_one_into_the_other(
    tmp_path: Path, one: list[bytes], other: list[bytes], ends: bool, other_ends: bool
) -> None:
    old, new = text(one, ends), text(other, other_ends)
    told = joined(old, new)
    if old == new:
        assert told == b""
        return
    (tmp_path / "f").write_bytes(old)

    subprocess.run(
        ["patch", "--binary", "-s", "-p1", "--no-backup-if-mismatch"], cwd=tmp_path, input=told, check=True
    )

    left = (tmp_path / "f").read_bytes() if (tmp_path / "f").exists() else b""
    assert left == new


def test_it_is_what_diff_u_prints(tmp_path: Path) -> None:
    old = b"".join(b"line %d\n" % n for n in range(100))
    new = (
        old.replace(b"line 7\n", b"seven\n")
        .replace(b"line 12\n", b"")
        .replace(b"line 90\n", b"line 90\nmore\n")
    )
    (tmp_path / "a").write_bytes(old)
    (tmp_path / "b").write_bytes(new)

    theirs = subprocess.run(["diff", "-u", "a", "b"], cwd=tmp_path, capture_output=True, check=False).stdout

    assert joined(old, new).splitlines()[2:] == theirs.splitlines()[2:]


def test_a_long_file_with_one_change_is_compared_at_once() -> None:
    old = b"".join(b"%d\n" % n for n in range(300_000))
    new = old.replace(b"\n150000\n", b"\nhalf\n")

    assert joined(old, new).count(b"\n") == 2 + 1 + 8


def test_files_that_differ_everywhere_are_still_told_whole() -> None:
    old = b"".join(b"old %d\n" % n for n in range(15_000))
    new = b"".join(b"new %d\n" % n for n in range(15_000))

    lines = list(unified(old, new, b"a", b"b"))

    assert sum(line.startswith(b"-old") for line in lines) == 15_000
    assert sum(line.startswith(b"+new") for line in lines) == 15_000


class NoBlobs:
    """A store that has lost everything."""

    def has(self, digest: str) -> bool:
        return False

    def read(self, digest: str) -> Iterator[bytes]:
        raise AssertionError("nothing to read")


def effect_on(path: Path, before: dict[str, object], after: dict[str, object]) -> Effect:
    target = Target(f"file://{path}", before, after)
    change = Change("file", "write", target.resource, "write")
    remedy = Remedy("file", 1, Strategy.SNAPSHOT, (target,))
    return Effect("e" * 20, "r" * 20, "", 1, State.DONE, change, remedy=remedy)


def a_file(content: bytes) -> dict[str, object]:
    import hashlib

    digest = hashlib.sha256(content).hexdigest()
    return {"type": "file", "size": len(content), "digest": digest, "mode": 0o644, "uid": 0, "gid": 0}


def test_what_the_store_lacks_is_read_from_disk_while_it_is_still_that(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"new\n")
    effect = effect_on(path, {"type": "absent"}, a_file(b"new\n"))

    (part,) = difference(NoBlobs(), effect)  # type: ignore[arg-type]
    path.write_bytes(b"NEW\n")
    (gone,) = difference(NoBlobs(), effect)  # type: ignore[arg-type]

    assert part.lines[-1] == b"+new"
    assert gone.lines == ()
    assert "neither in the store nor on disk" in gone.words[0]


def test_a_fifo_in_the_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "f"
    os.mkfifo(path)

    (part,) = difference(NoBlobs(), effect_on(path, {"type": "absent"}, a_file(b"new\n")))  # type: ignore[arg-type]

    assert part.lines == ()


def test_a_mode_alone_is_told_in_words(tmp_path: Path) -> None:
    before, after = a_file(b"x"), a_file(b"x") | {"mode": 0o755}

    (part,) = difference(NoBlobs(), effect_on(tmp_path / "f", before, after))  # type: ignore[arg-type]

    assert part.words == ("mode 0644 → 0755",)


def test_a_path_that_the_effect_did_not_touch_is_misuse(tmp_path: Path) -> None:
    effect = effect_on(tmp_path / "f", {"type": "absent"}, a_file(b"x"))

    with pytest.raises(Misuse):
        difference(NoBlobs(), effect, "file:///elsewhere")  # type: ignore[arg-type]


@pytest.mark.needs("patch")
def test_a_name_with_a_line_end_does_not_break_the_patch(tmp_path: Path) -> None:
    name = b'new\nline "quoted" \\ \xff'
    path = os.path.join(os.fsencode(tmp_path), name)
    with open(path, "wb") as file:
        file.write(b"old\n")
    told = unified(b"old\n", b"new\n", quoted(b"a/" + name), quoted(b"b/" + name))

    subprocess.run(
        ["patch", "-s", "-p1"], cwd=tmp_path, input=b"".join(line + b"\n" for line in told), check=True
    )

    with open(path, "rb") as file:
        assert file.read() == b"new\n"


def test_an_empty_file_that_came_or_went_is_told_in_words(tmp_path: Path) -> None:
    import takeback

    path = tmp_path / "empty"
    with takeback.open(tmp_path / "store") as tb, tb.run("r") as run:
        made = run.write(path, "")
        gone = run.delete(path)
        assert made and gone
        words = [difference(tb.store.blobs, effect)[0].words for effect in (made, gone)]
    assert words == [("nothing → 0 bytes",), ("0 bytes → nothing",)]
