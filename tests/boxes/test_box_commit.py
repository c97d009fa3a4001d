"""What is in a box, merged into the world or exported."""

import os
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from takeback.api import Takeback
from takeback.errors import Conflict, Misuse, Refused, ResourceUnreachable
from takeback.runs.boxes.box import Box
from takeback.runs.run import Run
from tests.boxes.rootfs import make_rootfs
from tests.world import World

pytestmark = pytest.mark.root


def test_commit_makes_the_world_what_the_box_showed_and_undo_brings_it_back(box: Box, world: World) -> None:
    (world / "old").write_text("old")
    (world / "dir").mkdir()
    (world / "dir" / "x").write_text("x")
    before = world.picture()
    box.run("echo new > new; echo more >> old; mv dir moved; echo y > moved/y; ln -s new link")
    box.run("echo again >> new; chmod 700 moved; mkdir -p a/b; ln new twin")
    shown = box.run("ls -R; cat new old moved/y").stdout

    outcome = box.commit()

    assert outcome.effect and "Committed" in outcome.text
    after = world.picture()
    assert sorted(os.fsdecode(path) for path in after) == [
        ".", "a", "a/b", "link", "moved", "moved/x", "moved/y", "new", "old", "twin",
    ]  # fmt: skip
    assert os.path.samefile(world / "new", world / "twin")
    assert stat.S_IMODE(os.stat(world / "moved").st_mode) == 0o700
    assert box.run("ls -R; cat new old moved/y").stdout == shown
    assert box.changes() == ()

    box.undo()

    assert world.picture() == before
    assert box.run("ls -R; cat new old moved/y").stdout == shown
    box.commit()
    assert world.picture() == after


def test_after_a_commit_the_box_goes_on_and_each_part_is_taken_back_by_itself(box: Box, world: World) -> None:
    box.run("echo 1 > a")
    box.commit()
    box.run("echo 2 > a; echo b > b")
    box.commit()
    assert (world / "a").read_text() == "2\n"
    assert [step.kind for step in box.history()] == ["run", "commit", "run", "commit"]

    box.undo()
    assert (world / "a").read_text() == "1\n" and not (world / "b").exists()
    assert box.run("cat a b").stdout == b"2\nb\n"
    box.undo(2)
    assert os.listdir(world.root) == []
    assert box.run("cat a").stdout == b"1\n"
    box.undo()
    assert box.run("ls").stdout == b""


def test_what_one_undo_took_back_one_redo_brings_back(box: Box, tb: Takeback, world: World) -> None:
    first = box.run("echo 1 > a").effect
    box.run("echo 2 > a; cd /")
    box.commit()
    box.run("echo 3 > b")
    shown = box.run(f"cat {world / 'a'}; pwd").stdout
    for redo in (lambda undone: tb.redo(), tb.redo):
        undone = box.undo(to=first)
        assert len(undone.undo) == 4 and os.listdir(world.root) == []
        redone = redo(undone)
        assert redone.outcome == "done" and (world / "a").read_text() == "2\n"
        assert box.run(f"cat {world / 'a'}; pwd").stdout == shown and len(box.changes()) == 1
    box.undo()
    two = box.undo(2)
    tb.redo()
    assert os.listdir(world.root) == ["a"] and len(box.history()) == 4
    with pytest.raises(Refused, match="took nothing back"):
        tb.redo(box.undo(to=box.history()[2].effect))
    with pytest.raises(Refused):
        tb.redo(two)


def test_what_was_merged_is_not_taken_back_under_the_feet_of_the_box(
    box: Box, tb: Takeback, world: World
) -> None:
    box.run("echo 1 > a")
    effect = box.commit().effect
    assert effect
    with pytest.raises(Refused, match="Later effects"):
        tb.undo(effect)
    tb.undo(effect, cascade=True)
    assert os.listdir(world.root) == []
    assert box.run("cat a").stdout == b"1\n"


def test_a_run_that_fails_takes_its_commits_back_too(tb: Takeback, world: World) -> None:
    (world / "a").write_text("before")
    before = world.picture()
    with pytest.raises(RuntimeError), tb.run("fails") as run, run.sandbox(cwd=world.root) as box:
        box.run("echo 1 > a; echo 1 > b")
        box.commit()
        box.run("echo 2 > a; rm b")
        box.commit()
        assert (world / "a").read_text() == "2\n"
        raise RuntimeError
    assert world.picture() == before
    assert tb.verify().sound


def test_two_branches_may_both_commit_what_does_not_touch(box: Box, world: World) -> None:
    box.run("echo both > a")
    with box.branch() as other:
        other.run("echo other > b; echo other >> a")
        box.run("echo mine > c")
        other.commit()
        with pytest.raises(Conflict):
            box.commit()
        assert box.run("cat a").stdout == b"both\n"
    assert sorted(os.listdir(world.root)) == ["a", "b"]


def test_a_file_that_someone_else_changed_is_a_conflict_and_nothing_is_merged(box: Box, world: World) -> None:
    (world / "a").write_text("ours")
    box.run("echo box > a; echo box > b")
    (world / "a").write_text("someone else")

    with pytest.raises(Conflict, match="changed by someone else"):
        box.commit()

    assert (world / "a").read_text() == "someone else" and not (world / "b").exists()
    assert box.run("cat a b").stdout == b"box\nbox\n"


def test_a_directory_that_someone_took_away_is_a_conflict(box: Box, world: World) -> None:
    (world / "d").mkdir()
    (world / "d" / "x").write_text("x")
    box.run("echo new > d/new")
    box.run("echo newer > d/newer")
    os.rename(world / "d", world / "elsewhere")

    with pytest.raises(Conflict):
        box.commit()

    assert os.listdir(world.root) == ["elsewhere"]


def test_files_that_lived_only_inside_the_box_are_no_conflict(box: Box, world: World) -> None:
    box.run("echo 1 > a; echo 1 > b; mkdir d; echo 1 > d/c")
    box.run("echo 2 >> a; rm b; rm -r d; mkdir d; echo 2 > d/e")
    box.run("echo 3 >> a; mv d f")

    box.commit()

    assert sorted(os.listdir(world.root)) == ["a", "f"]
    assert (world / "a").read_text() == "1\n2\n3\n" and os.listdir(world / "f") == ["e"]


def test_a_box_with_nothing_in_it_commits_nothing(box: Box) -> None:
    assert box.commit().effect is None
    box.run("cd /")
    assert box.commit().effect is None


def test_a_commit_after_squashing_is_the_same(box: Box, world: World) -> None:
    for n in range(20):
        assert box.run(f"echo {n} > f{n}; echo {n} >> all").effect

    outcome = box.commit()

    assert outcome.effect and outcome.effect.remedy and outcome.effect.remedy.exact
    assert (world / "all").read_text() == "".join(f"{n}\n" for n in range(20))
    assert len(os.listdir(world.root)) == 21


def test_a_root_filesystem_of_its_own_gets_the_commit(run: Run, tmp_path: Path) -> None:
    root = make_rootfs(tmp_path / "rootfs")
    with run.sandbox(root) as box:
        box.run("echo changed > /etc/name; mkdir /srv")
        box.commit()
        assert (root / "etc" / "name").read_text() == "changed\n" and (root / "srv").is_dir()
        box.undo()
        assert (root / "etc" / "name").read_text() == "small\n" and not (root / "srv").exists()


def exported(run: Run, tmp_path: Path) -> tuple[Box, Path]:
    root = make_rootfs(tmp_path / "rootfs")
    (root / "etc" / "gone").write_text("gone")
    box = run.sandbox(root)
    box.run("echo changed > /etc/name; rm /etc/gone; mv /usr /opt; echo x > /opt/x; ln /opt/x /opt/twin")
    box.run("ln -s x /opt/link; mkdir /root/d; chmod 711 /root/d; echo \xe9 > '/root/d/\xe9'")
    return box, tmp_path / "image.tar"


def test_an_exported_box_is_a_tar_file_of_all_it_shows(run: Run, tmp_path: Path) -> None:
    box, image = exported(run, tmp_path)
    with box:
        assert box.export(image) == str(image)
        with pytest.raises(Refused, match="there already"):
            box.export(image)

    with tarfile.open(image) as tar:
        found = {one.name: one for one in tar.getmembers()}
        assert {"bin/sh", "etc/name", "opt", "opt/x", "opt/link", "root/d"} <= found.keys()
        assert "etc/gone" not in found and "usr" not in found
        content = tar.extractfile("etc/name")
        assert content and content.read() == b"changed\n"
        twins = {found["opt/x"].type, found["opt/twin"].type}
        assert twins == {tarfile.REGTYPE, tarfile.LNKTYPE}
        assert found["opt/link"].linkname == "x"
        assert found["root/d"].mode == 0o711 and "root/d/é" in found
        assert not [one for one in found.values() if any("overlay" in name for name in one.pax_headers)]
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


def test_an_image_is_handed_to_docker(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that takes what docker would take."""
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "docker").write_text(
        f'#!/bin/sh\n[ "$*" = "import - name:1" ] && cat > {tmp_path}/took && echo sha256:1\n'
    )
    (bin / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(bin), prepend=os.pathsep)
    box, _ = exported(run, tmp_path)
    with box:
        assert box.export("docker:name:1") == "sha256:1"
        with tarfile.open(tmp_path / "took") as tar:
            assert "opt/x" in tar.getnames()
        with pytest.raises(Misuse):
            box.export("docker:")
        monkeypatch.setenv("PATH", "/nonexistent")
        with pytest.raises(ResourceUnreachable, match="neither docker nor podman"):
            box.export("docker:name:1")


@pytest.mark.parametrize("lines", [["echo x >> f"], ["chmod 600 f", "echo x >> f"], ["rm f", "echo x > f"]])
def test_what_someone_removed_from_the_base_meanwhile_is_not_made_again(
    box: Box, world: World, lines: list[str]
) -> None:
    (world / "f").write_text("old\n")
    for line in lines:
        assert box.run(line).exit_code == 0
    (world / "f").unlink()

    with pytest.raises(Conflict, match=r"/f was removed or moved away by someone else"):
        box.commit()

    assert not (world / "f").exists()


def test_what_the_box_made_itself_is_no_conflict_where_others_took_names_away(box: Box, world: World) -> None:
    for name in ("f", "other"):
        (world / name).write_text("old\n")
    for line in ("echo 1 > new", "echo 2 >> new", "mv f moved", "echo 3 >> moved"):
        assert box.run(line).exit_code == 0
    (world / "other").unlink()

    box.commit()

    assert ((world / "new").read_text(), (world / "moved").read_text()) == ("1\n2\n", "old\n3\n")


@pytest.mark.parametrize("move", ["mv d e", "mkdir up; mv d up/e", "mv d e; mv e/sub e/other", "mv d/sub e"])
@pytest.mark.parametrize("other", ["mv d x", "rm -r d"])
def test_a_directory_whose_content_another_took_away_is_not_made_empty(
    box: Box, world: World, move: str, other: str
) -> None:
    (world / "d" / "sub").mkdir(parents=True)
    (world / "d" / "sub" / "a").write_text("a")
    box.run(move)
    subprocess.run(other, shell=True, cwd=world.root, check=True)
    before = world.picture()

    with pytest.raises(Conflict, match="was removed or moved away by someone else"):
        box.commit()

    assert world.picture() == before


def test_a_path_too_long_for_anyone_is_told_and_kept_as_a_step(box: Box, world: World) -> None:
    name = "x" * 250
    outcome = box.run(
        [
            "bash",
            "-c",
            f"for n in $(seq 20); do mkdir {name} && cd -P ./{name} || exit 1; done; echo x > leaf; cd /",
        ]
    )
    assert outcome.exit_code == 0 and outcome.effect

    for asked in (lambda: outcome.changes, box.changes, box.commit):
        with pytest.raises(Refused, match="more than 4,096 bytes") as told:
            asked()
        assert told.value.hint

    assert box.run(f"rm -rf {world.root}/xxx*; echo y > {world.root}/y").exit_code == 0
    assert [one.path for one in box.changes()] == [str(world / "y")]
    box.commit()
    assert os.listdir(world.root) == ["y"]


@pytest.mark.parametrize("lines", [["mv d e"], ["mv d e", "echo y > e/y"], ["mv d f", "mkdir g; mv f g/e"]])
@pytest.mark.parametrize("gone", [False, True])
def test_a_directory_that_the_box_moved_and_someone_took_away_is_a_conflict(
    box: Box, world: World, lines: list[str], gone: bool
) -> None:
    (world / "d" / "sub").mkdir(parents=True)
    (world / "d" / "a").write_text("a")
    (world / "d" / "sub" / "b").write_text("b")
    for line in lines:
        assert box.run(line).exit_code == 0
    if gone:
        os.rename(world / "d", world / "x")
        with pytest.raises(Conflict, match=r"/d was removed or moved away by someone else"):
            box.commit()
        assert os.listdir(world.root) == ["x"]
        return
    box.commit()
    moved = world / ("g/e" if len(lines) == 2 and "g" in lines[1] else "e")
    assert (moved / "a").read_text() == "a" and (moved / "sub" / "b").read_text() == "b"
    assert not (world / "d").exists()


def test_finding_18_names_of_one_file_that_came_apart_in_a_box_are_told(box: Box, world: World) -> None:
    (world / "a").write_text("0\n")
    os.link(world / "a", world / "b")
    before = world.picture()
    box.run("echo 1 >> a")
    box.run("echo 2 >> b")

    outcome = box.commit()

    assert outcome.effect and outcome.effect.remedy
    assert not outcome.effect.remedy.exact
    assert f"{world / 'a'} and {world / 'b'} were names of one file" in outcome.effect.remedy.residue
    assert "separate files now" in outcome.text
    box.undo()
    assert world.picture() == before


def test_names_that_one_step_replaced_together_are_not_told_as_apart(box: Box, world: World) -> None:
    (world / "a").write_text("0\n")
    os.link(world / "a", world / "b")
    box.run("echo 1 >> a; echo 2 >> b")

    outcome = box.commit()

    assert outcome.effect and outcome.effect.remedy and outcome.effect.remedy.exact
    assert (world / "b").read_text() == "0\n1\n2\n"
    assert os.path.samefile(world / "a", world / "b")
