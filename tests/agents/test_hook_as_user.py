"""`takeback hook` of an ordinary user, whose home may not be his to write."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import puppet
from tests.sandbox.scenes import USER, Home, make_home

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def made() -> Iterator[Home]:
    home = make_home()
    try:
        yield home
    finally:
        shutil.rmtree(home.directory)


class Person:
    def __init__(self, made: Home) -> None:
        self.made = made
        self.home = Path(tempfile.mkdtemp(dir=made.directory))
        self.state = Path(tempfile.mkdtemp(dir=made.directory))
        for path in (self.home, self.state):
            os.chown(path, USER, USER)

    def takeback(self, *words: str) -> "subprocess.CompletedProcess[str]":
        code = (
            f"import sys; sys.path[:0] = [{str(self.made.library)!r}]; "
            "from takeback.frontends.cli.main import main; main()"
        )
        done = subprocess.run(
            ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", self.made.python, "-I", "-B", "-c",
             code, *words],
            cwd=self.home, timeout=240, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"], "XDG_STATE_HOME": str(self.state)},
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def owns(self, path: Path) -> bool:
        return path.stat().st_uid == USER


@pytest.fixture
def person(made: Home) -> Person:
    return Person(made)


def test_hooks_are_installed_and_removed(person: Person) -> None:
    assert person.takeback("hook", "install", "claude-code").returncode == 0
    file = person.home / ".claude" / "settings.json"
    assert person.owns(file)
    assert "PreToolUse" in json.loads(file.read_text())["hooks"]
    assert person.takeback("hook", "uninstall", "claude-code").returncode == 0
    assert os.listdir(person.home) == []


def test_a_home_that_cannot_be_written_is_refused(person: Person) -> None:
    person.home.chmod(0o555)
    done = person.takeback("hook", "install", "claude-code")
    assert done.returncode not in (0, 2), done
    assert done.stderr.startswith("error: "), done
    assert os.listdir(person.home) == []
    assert person.takeback("hook", "status").returncode == 0


def test_a_file_that_cannot_be_read_is_refused(person: Person) -> None:
    file = person.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"model": "opus"}')
    file.chmod(0o600)  # of root
    for words in (("install", "claude-code"), ("uninstall", "claude-code")):
        done = person.takeback("hook", *words)
        assert done.returncode == 3, done
        assert "cannot be read" in done.stderr
    assert "cannot be read" in person.takeback("hook", "status", "claude-code").stdout
    assert file.read_text() == '{"model": "opus"}'


def test_a_file_that_cannot_be_written_is_refused(person: Person) -> None:
    file = person.home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"model": "opus"}')
    file.chmod(0o644)
    done = person.takeback("hook", "install", "claude-code")
    assert done.returncode not in (0, 2), done
    assert file.read_text() == '{"model": "opus"}'
    assert os.listdir(file.parent) == ["settings.json"]


def test_hooks_are_proven_though_the_kernel_may_not_say_who_made_a_change(person: Person) -> None:
    program = person.home / "claude"
    program.write_text(f"#!{person.made.python} -B\n{Path(puppet.__file__).read_text()}\nmain('')\n")
    program.chmod(0o755)
    person.takeback("hook", "install", "claude-code")

    done = person.takeback("hook", "test", "claude-code", "--program", str(program), "--json")

    assert done.returncode == 0, done
    checks = json.loads(done.stdout)["checks"]
    assert [one["held"] for one in checks] == [True] * 5
    assert "with the project named" in checks[2]["detail"]
    (proof,) = (person.state / "takeback/hooks/proofs").iterdir()
    assert proof.stat().st_mode & 0o777 == 0o600
    assert proof.parent.stat().st_mode & 0o777 == 0o700
