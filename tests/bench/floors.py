"""What the same durability costs when written by hand, and what the usual alternative costs."""

import os
import sqlite3
import subprocess

INTENT = "INSERT INTO records (kind, body) VALUES ('intent', ?)"
DONE = "INSERT INTO records (kind, body) VALUES ('done', ?)"
# About what an intent has to say; nothing in it depends on us.
SAID = f'{{"kind":"write","resource":"file:///some/file.txt","before":"{0:064}","after":"{1:064}"}}'


class Floor:
    """One temp file, fsync, rename, fsync of the directory, between two commits of a WAL database at FULL."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.join(directory, "files")
        os.makedirs(self.directory)
        self.database = sqlite3.connect(os.path.join(directory, "floor.db"), isolation_level=None)
        self.database.execute("PRAGMA journal_mode=WAL")
        self.database.execute("PRAGMA synchronous=FULL")
        self.database.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, kind TEXT, body TEXT)")

    def write(self, name: str, content: bytes) -> None:
        self._commit(INTENT, SAID)
        target = os.path.join(self.directory, name)
        temp = f"{target}.new"
        handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(handle, content)
        os.fsync(handle)
        os.close(handle)
        os.rename(temp, target)
        handle = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(handle)
        os.close(handle)
        self._commit(DONE, "{}")

    def _commit(self, statement: str, body: str) -> None:
        self.database.execute("BEGIN IMMEDIATE")
        self.database.execute(statement, (body,))
        self.database.execute("COMMIT")

    def close(self) -> None:
        self.database.close()


class ShadowGit:
    """A repository beside the work tree, one durable commit for each write: what agents use for want of better."""

    def __init__(self, directory: str, files: int) -> None:
        self.tree = os.path.join(directory, "tree")
        self.environment = os.environ | {
            "GIT_DIR": os.path.join(directory, "shadow.git"),
            "GIT_WORK_TREE": self.tree,
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        for number in range(files):
            place = os.path.join(self.tree, f"{number % 20:02}")
            os.makedirs(place, exist_ok=True)
            with open(os.path.join(place, f"{number}.txt"), "wb") as file:
                file.write(os.urandom(1024).hex().encode())
        self._git("init", "--quiet")
        self.commit()

    def write(self, name: str, content: bytes) -> None:
        with open(os.path.join(self.tree, name), "wb") as file:
            file.write(content)
        self.commit()

    def commit(self) -> None:
        self._git("add", "--all")
        self._git("commit", "--quiet", "--no-verify", "--message", "checkpoint")

    def _git(self, *arguments: str) -> None:
        settings = ("core.fsync=all", "gc.auto=0", "user.name=bench", "user.email=bench@localhost")
        options = [word for setting in settings for word in ("-c", setting)]
        subprocess.run(
            ["git", *options, *arguments], check=True, env=self.environment, stdout=subprocess.DEVNULL
        )
