"""Packs: self-describing, locked while something in them is not committed, never trusted after a failure."""

import errno
import os
import stat
from pathlib import Path

import pytest

from takeback.errors import Refused, ResourceUnreachable
from takeback.storage import disk
from takeback.storage.blobs.codec import BlobForm, name
from takeback.storage.blobs.packs import CAP, EntryDamaged, Packs, pack_path, packs_in, scan
from takeback.storage.tables import PackEntry, PackPlace


def entry(content: bytes, base: bytes = b"") -> PackEntry:
    return PackEntry(name(content), base, BlobForm.RAW, len(content), content)


@pytest.fixture
def alarms() -> list[str]:
    return []


@pytest.fixture
def packs(tmp_path: Path, alarms: list[str]) -> Packs:
    return Packs(str(tmp_path / "packs"), lambda: alarms.append("suspect"))


def file_of(packs: Packs, place: PackPlace) -> Path:
    return Path(pack_path(packs.directory, place.pack))


def test_what_was_appended_can_be_read_and_scanned_without_an_index(packs: Packs) -> None:
    entries = [entry(b"one"), entry(b""), entry(b"three", base=name(b"one")), entry(os.urandom(100_000))]
    places = packs.append(entries[:2]) + packs.append(entries[2:])
    packs.sync()
    assert [packs.read(place, check=True) for place in places] == entries
    handle = disk.open_private(pack_path(packs.directory, places[0].pack))
    assert list(scan(handle)) == [(place.position, one) for place, one in zip(places, entries, strict=True)]
    os.close(handle)


def test_packs_are_private_whatever_the_umask(packs: Packs) -> None:
    for umask in (0o000, 0o777):
        before = os.umask(umask)
        try:
            (place,) = Packs(packs.directory + f"-{umask}", lambda: None).append([entry(b"x")])
        finally:
            os.umask(before)
        folder = Path(packs.directory + f"-{umask}")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / f"{place.pack:012x}.pack").stat().st_mode) == 0o600


def test_a_full_pack_gets_no_more_entries(packs: Packs) -> None:
    big = os.urandom(CAP // 3)
    places = [packs.append([entry(big + bytes([n]))])[0] for n in range(7)]
    assert [place.pack for place in places].count(places[0].pack) == 3
    assert len(packs_in(packs.directory)) == 3


def test_a_torn_tail_ends_the_scan_and_hides_nothing_before_it(packs: Packs) -> None:
    places = packs.append([entry(b"one"), entry(b"two" * 100)])
    with open(file_of(packs, places[0]), "r+b") as file:
        file.truncate(places[1].position + 150)
    handle = disk.open_private(str(file_of(packs, places[0])))
    assert [one.data for _, one in scan(handle)] == [b"one"]
    os.close(handle)
    with pytest.raises(EntryDamaged):
        packs.peek(places[1])


def test_any_changed_byte_of_an_entry_is_found(packs: Packs) -> None:
    (place,) = packs.append([entry(b"some content")])
    path = file_of(packs, place)
    sound = path.read_bytes()
    for at in range(place.position, len(sound)):
        if place.position + 5 <= at < place.position + 8:
            continue  # padding means nothing
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(EntryDamaged):
            packs.read(place, check=True)


def test_a_pack_is_locked_until_its_entries_are_committed(packs: Packs) -> None:
    (place,) = packs.append([entry(b"x")])
    handle = disk.open_private(str(file_of(packs, place)))
    assert not disk.try_lock(handle)
    packs.sync()
    packs.release()
    assert disk.try_lock(handle)
    os.close(handle)


def test_a_pack_someone_swept_or_is_sweeping_is_not_written_to_again(packs: Packs) -> None:
    (first,) = packs.append([entry(b"x")])
    packs.sync()
    packs.release()
    handle = disk.open_private(str(file_of(packs, first)))
    assert disk.try_lock(handle)
    (second,) = packs.append([entry(b"y")])
    assert second.pack != first.pack
    os.close(handle)
    packs.release()
    file_of(packs, second).unlink()
    (third,) = packs.append([entry(b"z")])
    assert third.pack != second.pack and packs.read(third).data == b"z"


def test_the_same_pack_goes_on_after_a_commit(packs: Packs) -> None:
    (first,) = packs.append([entry(b"x")])
    packs.sync()
    packs.release()
    assert packs.append([entry(b"y")])[0].pack == first.pack


def test_a_failed_fsync_is_not_tried_again(
    packs: Packs, alarms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = packs.append([entry(b"x")])
    asked: list[int] = []

    def failing(handle: int) -> None:
        asked.append(handle)
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(ResourceUnreachable):
            packs.sync()
    assert len(asked) == 1 and alarms == ["suspect"] and packs.is_broken(place.pack)
    (other,) = packs.append([entry(b"y")])
    packs.sync()
    assert other.pack != place.pack and not packs.is_broken(other.pack)


def test_a_disk_that_gives_back_other_bytes_is_suspect(
    packs: Packs, alarms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda handle, length, offset: real(handle, length, offset)[:-1] + b"?")
    with pytest.raises(ResourceUnreachable):
        packs.append([entry(b"x")])
    assert alarms == ["suspect"]


def test_short_writes_are_completed(packs: Packs, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:1000]))
    content = os.urandom(50_000)
    (place,) = packs.append([entry(content)])
    assert packs.read(place, check=True).data == content


def test_a_full_disk_is_named_with_a_way_out(
    packs: Packs, alarms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ResourceUnreachable, match="No space left") as error:
        packs.append([entry(b"x")])
    assert "Free some space" in error.value.hint and alarms == []


def test_links_fifos_and_open_modes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(OSError, match="symbolic links"):
        disk.open_private(str(tmp_path / "link"))
    os.close(disk.open_private(str(tmp_path / "real")))
    (tmp_path / "real").chmod(0o640)
    with pytest.raises(Refused, match="open to others") as error:
        disk.open_private(str(tmp_path / "real"))
    assert "chmod 600" in error.value.hint
    tmp_path.chmod(0o755)
    with pytest.raises(Refused) as error:
        disk.check_private(str(tmp_path))
    assert "chmod 700" in error.value.hint
    with pytest.raises(Refused, match="symbolic link"):
        disk.check_private(str(tmp_path / "link"))


def test_a_small_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "FORMAT"
    disk.write_file(str(path), b"one")
    for call in ("write", "fsync", "rename"):
        with monkeypatch.context() as patch:

            def failing(*_: object) -> int:
                raise OSError(errno.EIO, "no")

            patch.setattr(os, call, failing)
            with pytest.raises(ResourceUnreachable):
                disk.write_file(str(path), b"two")
        assert path.read_bytes() == b"one"
    disk.write_file(str(path), b"two")
    assert path.read_bytes() == b"two" and os.listdir(tmp_path) == ["FORMAT"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_second_eyes_3_a_full_disk_gets_back_what_no_commit_names(
    packs: Packs, alarms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (kept,) = packs.append([entry(b"committed")])
    packs.sync()
    packs.release()
    before = file_of(packs, kept).read_bytes()
    real = os.write

    def half(handle: int, data: bytes) -> int:
        if len(data) < 1000:
            raise OSError(errno.ENOSPC, "no")
        return real(handle, data[: len(data) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(ResourceUnreachable):
            packs.append([entry(os.urandom(50_000))])

    assert file_of(packs, kept).read_bytes() == before
    assert packs.read(kept, check=True).data == b"committed"
    assert packs.append([entry(b"more")])[0].pack != kept.pack and alarms == []
