"""Makes `store-3.tar.xz`: a store as this version writes it, with a world it fits. Run once per format, never again.

    python -m tests.format.make_golden_store

Paths are part of a store, so it is always unpacked at the same place.
"""

import io
import os
import shutil
import tarfile
from pathlib import Path
from random import Random

VERSION = 3  # that this version writes


def place(version: int) -> Path:
    return Path(f"/tmp/takeback-golden-store-{version}")


def archive_of(version: int) -> Path:
    return Path(__file__).with_name(f"store-{version}.tar.xz")


def make() -> None:
    import takeback

    here = place(VERSION)
    shutil.rmtree(here, ignore_errors=True)
    world = here / "world"
    world.mkdir(parents=True, mode=0o755)
    (world / "run.sh").write_text("#!/bin/sh\necho one\n")
    (world / "run.sh").chmod(0o755)
    (world / "conf.toml").write_text("# ports\nport = 80\n\n[tls]\non = false\n")
    (world / "tree" / "deep").mkdir(parents=True)
    (world / "tree" / "one").write_bytes(b"1" * 5000)
    os.link(world / "tree" / "one", world / "tree" / "deep" / "twin")
    (world / "tree" / "deep" / "large").write_bytes(
        Random(1).randbytes(66_000)
    )  # just too large for the database
    (world / "tree" / "link").symlink_to("one")
    for number, path in enumerate(sorted(world.rglob("*"), reverse=True)):
        os.utime(path, ns=(10**18, 10**18 + number), follow_symlinks=False)
    os.chdir(world)
    with takeback.open(str(here / "store")) as tb:
        with tb.run("deploy", agent="ann") as run:
            run.write(world / "run.sh", "#!/bin/sh\necho two\n", key="golden-key")
            run.checkpoint("halfway", state={"step": 2.5, "name": "ü"})
            run.edit_config(world / "conf.toml", {"/port": 8080, "/tls/on": True})
        with tb.run("clean up", agent="bob") as run:
            accepted = run.delete(world / "tree")
            run.move(world / "run.sh", world / "moved.sh")
            run.chmod(world / "conf.toml", 0o600)
            run.symlink(world / "shortcut", "conf.toml")
            run.mkdir(world / "empty")
        try:
            with tb.run("fails", agent="bob") as run:
                run.write(world / "never", "never")
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        tb.accept(accepted)
        tb.pin(tb.effects(path=world / "conf.toml")[0])
        undone = tb.effects(path=world / "empty")[0]
        tb.undo(undone)
        forgotten = tb.effects(path=world / "shortcut")[0]
        tb.forget(forgotten)
        run = tb.session("commands", agent="cli")
        run.write_all({world / "a": "a", world / "b": "b"})
        run.leave()
    with tarfile.open(archive_of(VERSION), "w:xz") as archive:
        archive.add(here, here.name, filter=_nobody)


def _nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    # The module itself would round the time to what a float holds.
    exact = os.lstat(place(VERSION).parent / entry.name).st_mtime_ns
    entry.pax_headers = {"TAKEBACK.mtime": str(exact)}
    return entry


def unpack(version: int) -> None:
    """Member by member, by hand: whatever the archive says, nothing lands elsewhere and it belongs to us."""
    shutil.rmtree(place(version), ignore_errors=True)
    with tarfile.open(archive_of(version), "r:xz") as archive:
        for entry in archive.getmembers():
            _put(archive, entry)
        for entry in reversed(archive.getmembers()):
            path = place(version).parent / entry.name
            if not entry.issym():
                path.chmod(entry.mode)
            mtime = int(entry.pax_headers["TAKEBACK.mtime"])
            os.utime(path, ns=(mtime, mtime), follow_symlinks=False)


def _put(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
    path = place(VERSION).parent / entry.name
    assert ".." not in path.parts
    if entry.isdir():
        path.mkdir(mode=0o700)
    elif entry.issym():
        path.symlink_to(entry.linkname)
    else:
        content = archive.extractfile(entry) or io.BytesIO()
        path.write_bytes(content.read())


if __name__ == "__main__":
    make()
