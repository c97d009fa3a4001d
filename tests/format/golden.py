"""Make the golden store of this format: `python -m tests.format.golden`. Once a format is released, never again."""

import io
import os
import shutil
import sys
import tarfile
from pathlib import Path

import takeback
from takeback.storage.store import VERSION

HERE = Path(__file__).parent
# Journals name absolute paths, so a golden store belongs to a world at one place.
PLACE = Path("/tmp/takeback-golden-1")
ARCHIVE = HERE / f"store-{VERSION}.tar.gz"


def clear() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)


def make() -> None:
    clear()
    (PLACE / "world" / "tree" / "deep").mkdir(parents=True)
    world = PLACE / "world"
    (world / "tree" / "deep" / "file").write_text("deep\n")
    (world / "tree" / "big").write_bytes(bytes(range(256)) * 4000)
    os.link(world / "tree" / "deep" / "file", world / "tree" / "twin")
    os.symlink("deep/file", world / "tree" / "link")
    (world / "conf.toml").write_text("# mine\nport = 80  # web\n")
    (world / "notes").write_text("before\n")
    with takeback.open(PLACE / "store") as tb:
        with tb.run("first", agent="golden") as run:
            run.write(world / "notes", "after\n")
            run.edit_config(world / "conf.toml", {"/port": 8080})
            run.checkpoint("middle", state={"step": 2})
            run.delete(world / "tree")
        with tb.run("second", agent="other") as run:
            moved = run.move(world / "notes", world / "renamed")
            run.mkdir(world / "made" / "up", parents=True)
        assert moved is not None
        tb.undo(moved)
        tb.redo()
        try:
            with tb.run("failing", agent="golden") as run:
                run.write(world / "never", "x")
                raise RuntimeError("no")
        except RuntimeError:
            pass
        tb.keep(tb.effects()[0])


def pack() -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        archive.add(PLACE, arcname=".")
    return data.getvalue()


if __name__ == "__main__":
    make()
    ARCHIVE.write_bytes(pack())
    clear()
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")
    sys.exit(0)
