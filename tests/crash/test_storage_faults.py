"""A store that is full, read-only, someone else's, too new, gone or damaged: refused before the world is touched."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest

import takeback
from takeback.storage.sqlite.older_format import VERSION
from takeback.storage.sqlite.store import FORMAT_LINE
from takeback.testing.crash import Boundaries, in_a_process
from tests.crash.mounts import fill, remount, tmpfs
from tests.crash.scenes import Scene, in_session
from tests.crash.tracing import Ran, run
from tests.damage import rewrite_records, saying

NOISE = Random(3).randbytes(400_000)


def refused(scene: Scene, code: int, *words: str, text: str = "new\n") -> Ran:
    """The command ends with this code, says why and what to do, and has touched nothing."""
    before = scene.picture()
    ended = run(list(words) or ["write", scene / "run.sh"], scene.store, text)
    assert ended.status == code, ended
    assert "Traceback" not in ended.error
    assert "hint" in ended.error, ended.error
    assert scene.picture() == before
    assert not scene.scratch()
    return ended


def changed(scene: Scene) -> list[takeback.Effect]:
    """Three effects in three runs: two small, and one whose earlier content is in a pack."""
    (scene.world / "large").write_bytes(NOISE)
    with scene.open() as tb:
        for name in ("run.sh", "data.json", "large"):
            with tb.run(name) as run:
                run.write(scene / name, b"changed\n")
        return [
            effect
            for effect in tb.effects()
            if effect.change.resource.startswith("file://" + str(scene.world))
        ]


# No room.


@pytest.fixture
def small(scene: Scene) -> Iterator[Path]:
    """The store on a filesystem of its own, small enough to fill."""
    scene.prepare()
    shutil.rmtree(scene.store)
    with tmpfs(scene.store.parent / "small", "size=24m", "nr_inodes=40") as place:
        scene.store = place / "store"
        scene.in_session(lambda run: run.write(scene / "run.sh", b"before it was full\n"))
        yield place


@pytest.mark.root
def test_a_full_store_refuses_a_change_and_can_still_undo_when_there_is_room_again(
    scene: Scene, small: Path
) -> None:
    filler = fill(small, leave=0)
    refused(scene, 5)
    filler.unlink()
    assert run(["undo", "@"], scene.store).status == 0


@pytest.mark.root
@pytest.mark.parametrize("folded", [True, False])
def test_a_full_store_can_be_looked_at_and_says_how_much_is_free(
    scene: Scene, small: Path, folded: bool
) -> None:
    """Also one whose write-ahead file a killed process has left."""
    if not folded:
        files = (scene.store / "journal.db", scene.store / "journal.db-wal")
        with scene.open() as tb:
            in_session(tb, lambda session: session.write(scene / "data.json", b"in the write-ahead file\n"))
            left = [file.read_bytes() for file in files]
        for file, content in zip(files, left, strict=True):
            file.write_bytes(content)
    filler = fill(small, leave=0)
    for words in (["log"], ["status"], ["verify"], ["recover"], ["show", "@"]):
        ended = run(words, scene.store)
        assert ended.status == 0, (words, ended)
        if words[0] in ("log", "show"):
            assert ("run.sh" if folded else "data.json") in ended.out
    if folded:  # else a small record may take the place of others in the write-ahead file
        assert "is full" in refused(scene, 5, "pin", "@").error
    assert " free" in refused(scene, 5).error
    assert not (scene.store / "SUSPECT").exists()
    assert run(["undo", "@"], scene.store).status == 0, "the store keeps room for this"
    filler.unlink()
    assert run(["redo"], scene.store).status == 0


@pytest.mark.root
def test_what_a_change_refused_for_lack_of_room_has_put_is_swept_at_once(scene: Scene, small: Path) -> None:
    filler = fill(small, leave=9 << 20)
    before = shutil.disk_usage(small).free
    large = Random(4).randbytes(2_000_000).hex()
    refused(scene, 5, text=large)
    ended = run(["sweep"], scene.store)
    assert ended.status == 0, ended
    assert shutil.disk_usage(small).free > before - 200_000, "but for some pages of the journal"
    filler.unlink()
    assert run(["write", scene / "run.sh"], scene.store, large).status == 0
    assert run(["sweep"], scene.store).status == 0
    assert run(["undo", "@"], scene.store).status == 0
    assert run(["redo", "@"], scene.store).status == 0
    assert (scene.world / "run.sh").read_text() == large


@pytest.mark.root
def test_a_pack_that_a_full_disk_cut_short_gives_its_room_back(scene: Scene, small: Path) -> None:
    (scene.store / "settings.json").write_text('{"reserve_bytes": 0}')
    fill(small, leave=200_000)
    refused(scene, 5, text=NOISE.hex())
    assert packs(scene) == []


@pytest.mark.root
@pytest.mark.parametrize("left", [4096, 20_000, 60_000, 200_000])
def test_a_store_that_fills_up_in_the_middle_loses_nothing(scene: Scene, small: Path, left: int) -> None:
    """Even with nothing held in reserve."""
    settings = scene.store / "settings.json"
    settings.write_text('{"reserve_bytes": 0}')
    settings.chmod(0o600)
    (scene.world / "run.sh").write_bytes(NOISE)
    before = scene.picture()
    filler = fill(small, leave=left)
    ended = run(["write", scene / "run.sh"], scene.store, "new\n")
    assert ended.status == 5, ended
    assert scene.picture() == before
    filler.unlink()
    with scene.open() as tb:
        assert tb.verify(read_data=True).findings == ()
        in_session(tb, lambda session: session.write(scene / "run.sh", b"new\n"))
        tb.undo("@")
    assert scene.picture() == before


@pytest.mark.root
def test_a_store_without_inodes_refuses_a_change(scene: Scene, small: Path) -> None:
    for number in range(100):
        try:
            (small / f"inode {number}").touch()
        except OSError:
            break
    refused(scene, 5)


@pytest.mark.root
def test_a_read_only_store_can_be_looked_at_and_refuses_changes(scene: Scene, small: Path) -> None:
    remount(small, "ro")
    assert "run.sh" in run(["log"], scene.store).out
    refused(scene, 5)
    refused(scene, 5, "undo", "@")


# Someone else's, or open to all.


@pytest.mark.root
def test_a_store_of_another_user_is_refused(scene: Scene) -> None:
    scene.prepare()
    os.chown(scene.store, 12345, 12345)
    assert "12345" in refused(scene, 3).error


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
def test_a_store_that_others_can_enter_is_refused(scene: Scene, mode: int) -> None:
    scene.prepare()
    scene.store.chmod(mode)
    assert "chmod 700" in refused(scene, 3).error


@pytest.mark.root
def test_an_ordinary_user_gets_a_reason_for_a_store_he_may_not_use(scene: Scene) -> None:
    scene.prepare()
    for path in (scene.directory.parent, scene.directory):
        path.chmod(0o755)
    before = scene.picture()
    scene.open().close()  # so that the child need not read modules it may not see

    def action(boundaries: Boundaries) -> None:
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        with pytest.raises(takeback.Refused):
            scene.open()

    end = in_a_process(action, Boundaries())
    assert not end.error, end.error
    assert scene.picture() == before


def as_an_ordinary_user(scene: Scene, words: list[str]) -> int:
    """What the command ends with, in a process that may not read the store."""
    from takeback.frontends.cli import main

    for path in (scene.directory.parent, scene.directory):
        path.chmod(0o755)
    # So that the child need not load modules that it may not see.
    with suppress(SystemExit):
        main.main([*words, "--store", str(scene.store)])
    child = os.fork()
    if not child:
        with open(os.devnull, "w") as away:
            os.dup2(away.fileno(), 1)
            os.dup2(away.fileno(), 2)
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        os._exit(main.main([*words, "--store", str(scene.store)]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.root
@pytest.mark.parametrize("owner", [0, 65534])
def test_a_store_that_may_not_be_looked_at_is_never_taken_for_absent(scene: Scene, owner: int) -> None:
    """Someone else's, and one's own that was closed to everybody: no command says that nothing is recorded."""
    scene.prepare()
    os.chown(scene.store, owner, owner)
    scene.store.chmod(0o700 if owner == 0 else 0)
    for command in ("log", "status", "undo", "verify", "runs", "sweep"):
        assert as_an_ordinary_user(scene, [command]) == (3 if owner == 0 else 5), command
    assert as_an_ordinary_user(scene, ["doctor"]) == 1


# Too new, or not there.


@pytest.mark.parametrize("kind", ["directory", "fifo", "loop"])
def test_settings_that_are_no_file_are_refused_at_once(scene: Scene, kind: str) -> None:
    scene.prepare()
    settings = scene.store / "settings.json"
    if kind == "directory":
        settings.mkdir()
    elif kind == "fifo":
        os.mkfifo(settings)
    else:
        settings.symlink_to(settings)
    assert "settings.json" in refused(scene, 5 if kind == "loop" else 2).error


def test_a_store_of_a_newer_version_is_refused_by_every_command(scene: Scene) -> None:
    scene.prepare()
    (scene.store / "FORMAT").write_text(f"{FORMAT_LINE}{VERSION + 1}\n")
    for words in (["write", scene / "run.sh"], ["undo", "@"], ["log"], ["sweep"], ["verify"]):
        assert "newer" in refused(scene, 6, *words).error


@pytest.mark.parametrize("what", ["FORMAT", "journal.db"])
def test_a_store_that_lost_a_file_is_refused_and_not_made_anew(scene: Scene, what: str) -> None:
    scene.prepare()
    (scene.store / what).unlink()
    refused(scene, 6)
    assert not (scene.store / what).exists()


@pytest.mark.parametrize(
    "content", ["", "takeback store\n", "takeback store x\n", "\0\0", "something else\n"]
)
def test_a_damaged_format_file_is_refused(scene: Scene, content: str) -> None:
    scene.prepare()
    (scene.store / "FORMAT").write_text(content)
    refused(scene, 6)


def test_a_store_deleted_while_in_use_refuses_the_next_change(scene: Scene) -> None:
    scene.prepare()
    with scene.open() as tb:
        run = tb.session("commands")
        shutil.rmtree(scene.store)
        before = scene.picture()
        with pytest.raises(takeback.TakebackError) as gone:
            run.write(scene / "run.sh", b"new\n")
        assert gone.value.hint
        assert scene.picture() == before


def test_a_directory_that_is_no_store_is_left_alone(scene: Scene) -> None:
    scene.prepare()
    shutil.rmtree(scene.store)
    scene.store.mkdir(mode=0o700)
    (scene.store / "thesis.txt").write_text("years of work")
    refused(scene, 3)
    assert os.listdir(scene.store) == ["thesis.txt"]


# Damaged.


def test_verify_names_the_records_on_a_page_that_cannot_be_read_and_checks_the_others(scene: Scene) -> None:
    scene.prepare()
    with scene.open() as tb, tb.run("many") as session:
        for number in range(60):
            session.write(scene / "run.sh", f"{number}\n".encode())
    journal = scene.store / "journal.db"
    with closing(sqlite3.connect(journal)) as connection:
        pages = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = 'records' AND pagetype = 'leaf'"
        ).fetchall()
        ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    assert len(pages) > 4
    with open(journal, "r+b") as file:
        file.seek((pages[len(pages) // 2][0] - 1) * size)
        file.write(b"\xff" * 40)
    with scene.open() as tb:
        rewrite_records(scene.store, "seq = 2", (), lambda kept: kept[:-1])
        found = list(tb.store.journal.check())
    unreadable = [one for one in found if one.endswith("cannot be read.")]
    assert 1 <= len(unreadable) < 40, found
    assert any(one.startswith("Record 2 (") and "hash does not fit" in one for one in found), found
    assert "The table 'records' of the journal cannot be read to its end." in found
    ended = refused(scene, 6, "verify")
    assert unreadable[0] in ended.out
    assert "can be used as before" not in ended.out


def packs(scene: Scene) -> list[Path]:
    return [
        path
        for path in (scene.store / "blobs").rglob("*")
        if path.is_file() and path.stat().st_size > 100_000
    ]


def test_a_damaged_blob_is_named_and_everything_else_can_still_be_undone(scene: Scene) -> None:
    scene.prepare()
    small, json, large = changed(scene)
    (pack,) = packs(scene)
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 1
    pack.write_bytes(content)

    told = run(["verify", "--read-data"], scene.store)
    assert told.status == 6, told
    refused(scene, 6, "undo", large.id)
    assert run(["undo", small.id, json.id], scene.store).status == 0
    assert run(["write", scene / "new"], scene.store, "still works\n").status == 0


def test_a_missing_pack_is_named_and_everything_else_can_still_be_undone(scene: Scene) -> None:
    scene.prepare()
    small, json, large = changed(scene)
    (pack,) = packs(scene)
    pack.unlink()

    told = run(["verify"], scene.store)
    assert told.status == 6, told
    assert large.remedy
    assert large.remedy.blobs[0] in told.out + told.error
    refused(scene, 6, "undo", large.id)
    assert run(["undo", small.id, json.id], scene.store).status == 0


def test_a_damaged_small_blob_is_named_and_everything_else_can_still_be_undone(scene: Scene) -> None:
    scene.prepare()
    small, json, large = changed(scene)
    with closing(sqlite3.connect(scene.store / "journal.db", isolation_level=None)) as connection:
        assert small.remedy
        wanted = bytes.fromhex(small.remedy.blobs[0])
        connection.execute("UPDATE blobs SET data = zeroblob(length(data)) WHERE digest = ?", (wanted,))
        assert connection.execute("SELECT changes()").fetchone() == (1,)

    told = run(["verify", "--read-data"], scene.store)
    assert told.status == 6, told
    refused(scene, 6, "undo", small.id)
    assert run(["undo", json.id, large.id], scene.store).status == 0


def test_a_damaged_record_is_named_and_other_runs_stay_usable(scene: Scene) -> None:
    scene.prepare()
    small, json, large = changed(scene)
    rewrite_records(scene.store, "seq = ?", (small.seq,), saying("run.sh", "passwd"))

    told = run(["verify"], scene.store)
    assert told.status == 6, told
    assert f"Record {small.seq}" in told.out + told.error
    refused(scene, 6, "undo", small.id)
    refused(scene, 6, "sweep")
    assert "damaged" in run(["log"], scene.store).out
    assert run(["undo", json.id, large.id], scene.store).status == 0
    assert run(["write", scene / "new"], scene.store, "still works\n").status == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("page", range(2, 28, 2))
def test_a_journal_with_a_torn_page_never_leads_to_a_wrong_world(scene: Scene, page: int) -> None:
    """Whatever page it is: each command works or is refused with a reason, and verify tells."""
    scene.prepare()
    changed(scene)
    name = scene.store / "journal.db"
    if name.stat().st_size <= page * 4096:
        pytest.fail("the journal is shorter than the test believes")
    with open(name, "r+b") as file:
        file.seek(page * 4096)
        damaged = file.read(4096) != bytes(4096)
        file.seek(page * 4096)
        file.write(b"\xa5" * 4096)
    before = scene.picture()

    told = run(["verify", "--read-data"], scene.store)
    assert told.status == 6 or not damaged, f"page {page}: {told}"
    for words in (["log"], ["undo", "@"], ["write", scene / "new"]):
        ended = run(words, scene.store, "new\n")
        assert "Traceback" not in ended.error, f"page {page}: {words}: {ended.error}"
        assert ended.status in (0, 3, 5, 6), f"page {page}: {words}: {ended}"
        now = scene.picture()
        if ended.status != 0 and words[0] != "undo":
            assert now == before or "It was done (" in ended.error, f"page {page}: {words}"
        # The page may be one that only the record of the outcome needs: then the undo is whole, and in doubt.
        assert (scene.world / "large").read_bytes() in (b"changed\n", NOISE), f"page {page}: {words}"
        assert {path for path in now if now[path] != before.get(path)} <= {b"large", b"new"}, (
            f"page {page}: {words}"
        )
        before = now
    assert not scene.scratch()
