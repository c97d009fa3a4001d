"""A trial sandbox is built once for a machine as it is, not once for each command."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback.errors import ResourceUnreachable
from takeback.sandbox import ability as room
from takeback.sandbox import probe_note, protocol
from takeback.sandbox.ability import ability
from tests.sandbox.scenes import UserScene

pytestmark = pytest.mark.root
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Where a sandbox was tried. Each question is asked as by a process of its own."""
    tried: list[str] = []
    real = room._try  # pyright: ignore[reportPrivateUsage]

    def counted(directory: str) -> tuple[bool, str]:
        tried.append(directory)
        return real(directory)

    monkeypatch.setattr(room, "_try", counted)
    yield tried
    room._ability.cache_clear()  # pyright: ignore[reportPrivateUsage]


def asked_anew(place: Path) -> room.Ability:
    room._ability.cache_clear()  # pyright: ignore[reportPrivateUsage]
    return ability(str(place))


def note(place: Path) -> Path:
    return place / "sandbox.json"


def test_the_second_process_does_not_try_again(tmp_path: Path, trials: list[str]) -> None:
    first = asked_anew(tmp_path)

    assert asked_anew(tmp_path) == first
    assert trials == [str(tmp_path)]
    assert note(tmp_path).stat().st_mode & 0o777 == 0o600


def test_another_boot_kernel_or_mount_is_another_machine(
    tmp_path: Path, trials: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = probe_note._read  # pyright: ignore[reportPrivateUsage]
    for changed in ("boot_id", "mountinfo", "max_user_namespaces", "uid_map", "cgroup"):
        asked_anew(tmp_path)
        trials.clear()

        def told(name: str, changed: str = changed) -> bytes:
            return real(name) + (b"x" if name.endswith(changed) else b"")

        monkeypatch.setattr(probe_note, "_read", told)
        asked_anew(tmp_path)
        assert trials == [str(tmp_path)], changed
        monkeypatch.setattr(probe_note, "_read", real)
        asked_anew(tmp_path)


def test_a_real_mount_that_came_since_is_noticed(tmp_path: Path, trials: list[str]) -> None:
    asked_anew(tmp_path)
    tell = "import sys; from takeback.sandbox.probe_note import recall; print(recall(sys.argv[1]))"
    mounts = 'mkdir -p $1/m && mount -t tmpfs t $1/m && shift && exec "$@"'
    words = [
        "unshare",
        "-m",
        "sh",
        "-c",
        mounts,
        "sh",
        str(tmp_path),
        sys.executable,
        "-c",
        tell,
        str(tmp_path),
    ]

    told = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
    )

    assert told.stdout == "None\n"
    assert probe_note.recall(str(tmp_path)) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"form": 1}', '{"form": 2}', "[" * 100_000])
def test_a_note_that_cannot_be_understood_is_none(tmp_path: Path, trials: list[str], text: str) -> None:
    note(tmp_path).write_text(text)

    assert asked_anew(tmp_path).engine == "root"
    assert trials == [str(tmp_path)]
    assert json.loads(note(tmp_path).read_text())["form"] == 1


def test_nobody_else_can_leave_a_note(tmp_path: Path, trials: list[str]) -> None:
    asked_anew(tmp_path)
    told = note(tmp_path).read_text()
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(told)
    note(tmp_path).unlink()
    note(tmp_path).symlink_to(elsewhere)
    assert probe_note.recall(str(tmp_path)) is None

    note(tmp_path).unlink()
    note(tmp_path).write_text(told)
    assert probe_note.recall(str(tmp_path)) is not None
    tmp_path.chmod(0o777)
    assert probe_note.recall(str(tmp_path)) is None


def test_a_start_that_fails_makes_it_forgotten(
    tmp_path: Path, trials: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    with takeback.open(str(store)) as tb:
        with tb.run("works") as run:
            assert run.command(["true"]).exit_code == 0
        assert note(store).exists()

        failing = {"problem": "setup", "text": "no user namespace"}
        with monkeypatch.context() as patch, pytest.raises(ResourceUnreachable), tb.run("fails") as run:
            patch.setattr(protocol, "read_message", lambda fd: failing)
            run.command(["true"])
        assert not note(store).exists()
        trials.clear()

        with tb.run("works again") as run:
            assert run.command(["true"]).exit_code == 0
    assert trials == [str(store)]


def test_doctor_tries_in_any_case(tmp_path: Path, trials: list[str]) -> None:
    from takeback.frontends.cli.commands.doctor import examine

    with takeback.open(str(tmp_path / "store")):
        pass
    ability(str(tmp_path / "store"))
    trials.clear()

    list(examine(str(tmp_path / "store"), str(tmp_path)))

    assert trials == [str(tmp_path / "store")]


def test_an_ordinary_user_has_a_note_of_their_own(user_scene: UserScene) -> None:
    first = user_scene.ask(what="ability", place=str(user_scene.directory))
    told = json.loads(note(user_scene.directory).read_text())

    assert told["layers_at"] == str(user_scene.directory)
    assert user_scene.ask(what="ability", place=str(user_scene.directory)) == first
