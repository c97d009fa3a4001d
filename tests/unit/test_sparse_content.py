"""What is nothing but a hole is not read, and is there again all the same."""

import hashlib
import os

from takeback.adapters.file.content import read_file, write_content
from takeback.storage.store import open_store

SIZE = 64 << 20


def test_holes_are_not_read_and_the_bytes_are_those_of_the_whole_file(tmp_path, monkeypatch):
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        file.write(b"head")
        file.seek(40 << 20)
        file.write(b"middle" * 1000)
        file.truncate(SIZE)
    read, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, at: read.append(count) or pread(fd, count, at))
    store = open_store(str(tmp_path / "store"), lambda: 0)
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        state = read_file(directory, b"sparse", "file:///sparse", store.blobs)
        seen = sum(read)
        assert state["digest"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert read_file(directory, b"sparse", "file:///sparse", None)["digest"] == state["digest"]
        with open(tmp_path / "again", "wb") as file:
            write_content(file.fileno(), state, store.blobs)
    finally:
        os.close(directory)
        store.close()

    assert seen < 8 << 20
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    assert os.stat(tmp_path / "again").st_blocks * 512 < 8 << 20
