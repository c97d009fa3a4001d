"""The 35 cases of what is to come back, and the project they are played in. No code of takeback is used."""

import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tests.agents.acts import user_appends
from tests.agents.family import Deed, Edit, Read, Shell, Write
from tests.agents.play import Now
from tests.agents.stage import Manifest, Place, git, set_out

_OLD = 1_700_000_000
_BIG = 30 << 20
USERS_LINE = "# USER WORK\n"
USERS_PATHS = ("docs/a.md", "user-new.txt")


class Case(NamedTuple):
    """`way`: what is asked for afterwards. The user acts during the call, after it, or before a redo."""

    name: str
    deeds: tuple[Deed, ...]
    way: str = "undo"  # "earlier": of the first call only; "redo": undo, then redo
    during: bool = False
    after: Callable[[Path], None] | None = None
    between: Callable[[Path], None] | None = None
    outside: bool = False  # what it changes is not in the project


class World(NamedTuple):
    """All that must come back: every path, and what git would say."""

    paths: Manifest
    git: dict[str, str]


def user_other(project: Path) -> None:
    with open(project / "docs/a.md", "a", encoding="utf-8") as file:
        file.write(USERS_LINE)
    (project / "user-new.txt").write_text(USERS_LINE)


def user_same(project: Path) -> None:
    with open(project / "src/app.py", "a", encoding="utf-8") as file:
        file.write(USERS_LINE)


def user_meanwhile(now: Now) -> None:
    user_appends("docs/a.md", USERS_LINE)(now)
    (now.project / "user-new.txt").write_text(USERS_LINE)


def world_of(place: Place) -> World:
    """git is not let write its index for that."""
    asked = {
        "HEAD": "git rev-parse HEAD; git symbolic-ref HEAD",
        "refs": "git for-each-ref",
        "stash": "git stash list --format=%H",
        "index": "git ls-files -s",
        "status": "git status --porcelain --ignored",
    }
    said: dict[str, str] = {}
    if (place.project / ".git").exists():
        for name, command in asked.items():
            done = subprocess.run(
                ["sh", "-c", command], cwd=place.project, env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            said[name] = done.stdout
    return World(place.look(), said)


def furnished(directory: Path) -> Place:
    """The stage's project, and in it what is hard to bring back: a stash, databases, much, and something big."""
    directory.mkdir()
    place = set_out(directory)
    project = place.project
    (
        project / "twin.txt"
    ).unlink()  # no case edits a file with two names: by path, it would stay apart from the other
    (project / "hard1.txt").write_text("linked\n")
    os.link(project / "hard1.txt", project / "hard2.txt")
    (project / "empty").mkdir()
    (project / "assets").mkdir()
    (project / ".gitignore").write_text(".env\nbuild/\nnode_modules/\n*.log\ndev.db\n")
    names = [f"src/m{number:02}.py" for number in range(40)]
    for name in names:
        (project / name).write_text(f"NAME = 'old'\nPLACE = {name!r}\n")
    git(project, "add", *names)
    git(project, "commit", "--quiet", "--message", "more", "--", ".gitignore", *names)
    (project / names[0]).write_text("NAME = 'stashed'\n")
    git(project, "stash", "push", "--quiet", "--", names[0])
    for number in range(20):
        (project / f"node_modules/left/f{number}.js").write_text(f"module.exports = {number}\n")
    for name in ("app.db", "dev.db"):
        with closing(sqlite3.connect(project / name)) as database:
            database.executescript(
                "create table users(id integer primary key, role text); insert into users values (1, 'member')"
            )
    with open(project / "assets/big.bin", "wb") as file:
        file.write(os.urandom(_BIG))
    for found, _, files in os.walk(place.top):
        for name in files if "/.git" not in found else ():
            os.utime(os.path.join(found, name), (_OLD, _OLD), follow_symlinks=False)
    git(project, "status")
    return place


def _edit(path: str, old: str, new: str) -> tuple[Deed, ...]:
    """An agent reads before it edits."""
    return Read(path), Edit(path, old, new)


def _sql(database: str, statement: str) -> Shell:
    return Shell(
        f"python3 -c \"import sqlite3; c = sqlite3.connect('{database}'); c.execute('{statement}'); c.commit()\""
    )


_APP = _edit("src/app.py", "    return 1", "    return 2")
_INSTALL = (
    "seq 200 | while read i; do mkdir -p node_modules/p$i; echo x > node_modules/p$i/i.js; done; "
    "echo broken > node_modules/left/f0.js"
)
CASES = (
    Case("edit-tracked", _APP),
    Case("edit-dirty", _edit("src/tool.py", "    return 2  # not committed", "    return 3")),
    Case("edit-untracked", _edit("notes.txt", "my notes", "AGENT notes")),
    Case("edit-ignored-env", _edit(".env", "SECRET=one", "SECRET=two")),
    Case("write-new", (Write("src/new.py", "NEW = 1\n"),)),
    Case("edit-outside", _edit("../other/config.toml", "port = 1", "port = 2")),
    Case("sh-edit-tracked", (Shell("sed -i 's/return 1/return 2/' src/app.py"),)),
    Case("sh-create", (Shell("mkdir -p gen/deep && echo made > gen/deep/made.txt"),)),
    Case("sh-rm-tracked", (Shell("rm src/app.py"),)),
    Case("sh-rm-untracked", (Shell("rm notes.txt"),)),
    Case("sh-rm-ignored", (Shell("rm .env"),)),
    Case("sh-rm-rf-dir", (Shell("rm -r docs"),)),
    Case("sh-mv", (Shell("mv src/app.py src/main.py; mv notes.txt docs/moved.txt"),)),
    Case("sh-chmod", (Shell("chmod 600 run.sh; chmod 644 .env; chmod 600 README.md"),)),
    Case("sh-sed-many", (Shell("sed -i s/old/new/ src/m*.py"),)),
    Case("git-commit", (Shell("git add -A && git commit -qm agent"),)),
    Case("git-reset-hard", (Shell("git reset -q --hard"),)),
    Case("git-clean-fdx", (Shell("git clean -qfdx"),)),
    Case("git-stash-drop", (Shell("git stash drop -q"),)),
    Case("rm-rf-git", (Shell("rm -r .git"),)),
    Case("install-ignored", (Shell(_INSTALL),)),
    Case(
        "sh-outside", (Shell("echo 'port = 2' > ../other/config.toml; echo x > ../other/new.txt"),),
        outside=True,
    ),
    Case("sqlite-untracked", (_sql("app.db", "update users set role=1"),)),
    Case("sqlite-ignored", (_sql("dev.db", "delete from users"),)),
    Case("big-binary", (Shell("head -c 31457280 /dev/zero > assets/big.bin"),)),
    Case("symlink-replaced", (Shell("rm link && echo plain > link"),)),
    Case("user-other-after", _APP, after=user_other),
    Case("user-other-during", (Shell("sed -i 's/return 1/return 2/' src/app.py; {call}; true"),), during=True),
    Case("user-same-after", _APP, after=user_same),
    Case("undo-earlier", (*_APP, *_edit("README.md", "line two", "line 2")), way="earlier"),
    Case("redo", _APP, way="redo"),
    Case("redo-shell", (Shell("rm notes.txt; echo made > made.txt; chmod 700 run.sh"),), way="redo"),
    Case("mv-untracked", (Shell("mv notes.txt docs/moved.txt"),)),
    Case("redo-user-between", _APP, way="redo", between=user_other),
    Case("redo-mv", (Shell("mv notes.txt docs/moved.txt"),), way="redo"),
)  # fmt: skip
