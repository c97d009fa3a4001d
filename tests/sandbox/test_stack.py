"""Layers over layers, over the machine's root or over a directory that holds one."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from takeback.errors import Refused
from takeback.sandbox.protocol import Stack
from tests.sandbox.scenes import Home, RootScene, Scene, UserScene, give, picture

pytestmark = pytest.mark.root


def small_root(directory: Path) -> Path:
    """A root filesystem with a shell and nothing else."""
    root = directory / "rootfs"
    for name in ("bin", "proc", "sys", "dev", "tmp", "etc", "lib", "work"):
        (root / name).mkdir(parents=True)
    for program in ("/bin/sh", "/bin/cat", "/bin/mv", "/bin/ls"):
        shutil.copy(os.path.realpath(program), root / "bin" / Path(program).name)
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for word in listed.split():
            if word.startswith("/") and not (root / word[1:]).exists():
                (root / word[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(os.path.realpath(word), root / word[1:])
    (root / "work" / "old").write_text("old")
    return root


def test_each_command_sees_what_the_ones_before_it_left(scene: Scene) -> None:
    (scene.world / "a").write_text("a")
    layers: tuple[str, ...] = ()
    for script in ("echo -n b >b; rm a", "mkdir d; mv b d/c", "mv d e; echo -n x >>e/c", "cat e/c; ls"):
        assert scene.run(script, stack=Stack("/", layers)).exit_code == 0, scene.said()
        layers = (scene.layer, *layers)

    assert scene.said() == "bxe\n"
    assert os.listdir(scene.world) == ["a"]


def test_a_layer_tells_what_it_changed_of_the_layers_below(root_scene: RootScene) -> None:
    scene = root_scene
    (scene.world / "d").mkdir()
    (scene.world / "d" / "a").write_text("a")
    scene.run("echo -n b >d/b; mv d e")
    below = scene.layer

    scene.run("rm e/a; echo -n c >>e/b; mv e f", stack=Stack("/", (below,)))

    assert scene.left() == {
        "e": ("gone", True), "e/a": ("gone", True), "e/b": ("gone", True), "f": ("dir", False), "f/b": ("bc", False)
    }  # fmt: skip


@pytest.mark.able("root directory on a disk")
def test_four_hundred_layers(root_scene: RootScene) -> None:
    root_scene.run("echo -n 1 >>count")
    layers = [root_scene.layer]
    form = (Path(root_scene.layer) / "layer.json").read_text()
    for number in range(400):
        more = root_scene.layers / f"more{number}"
        (more / "0").mkdir(parents=True)
        (more / "layer.json").write_text(form)
        layers.append(str(more))

    assert root_scene.run("cat count", stack=Stack("/", tuple(reversed(layers)))).exit_code == 0
    assert root_scene.said() == "1"


def test_a_root_filesystem_in_a_directory(scene: Scene, tmp_path: Path) -> None:
    root = small_root(scene.world)
    give(scene.world)
    before = picture(root)
    more = {"cwd": "/work", "stack": Stack(str(root))}

    ended = scene.run("/bin/sh", "-c", "ls /; cat old; echo -n new >new; mv old older; cat /proc/1/cmdline >/dev/null; "
                      "echo >/dev/null; test ! -e /usr", **more)  # fmt: skip

    assert ended.exit_code == 0, scene.said()
    assert {os.fsdecode(one.path): one.below for one in scene.lefts()} == {
        "/work/new": False, "/work/old": True, "/work/older": False
    }  # fmt: skip
    assert picture(root) == before
    scene.run("/bin/sh", "-c", "cat older new", cwd="/work", stack=Stack(str(root), (scene.layer,)))
    assert scene.said() == "oldnew"


def test_an_ordinary_user_is_root_in_a_root_filesystem_of_his_own(user_scene: UserScene) -> None:
    root = small_root(user_scene.world)
    user_scene.run(
        "/bin/sh", "-c", "cat /proc/self/uid_map; echo x >/work/mine", cwd="/", stack=Stack(str(root))
    )

    assert user_scene.said().split()[:2] == ["0", "1000"]
    [left] = user_scene.lefts()
    assert left.source and os.lstat(left.source).st_uid == 1000


@pytest.fixture
def submount(root_scene: RootScene) -> Iterator[Path]:
    point = root_scene.world / "mounted"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "takeback-test", point], check=True)
    try:
        (point / "old").write_text("old")
        yield point
    finally:
        subprocess.run(["umount", "-l", point], check=True)


def test_a_filesystem_mounted_inside_is_not_written_through(root_scene: RootScene, submount: Path) -> None:
    before = picture(submount)

    root_scene.run("cat mounted/old; echo -n new >mounted/new; rm mounted/old; echo -n x >beside")

    assert root_scene.said() == "old"
    assert root_scene.left() == {
        "beside": ("x", False), "mounted/new": ("new", False), "mounted/old": ("gone", True)
    }  # fmt: skip
    assert picture(submount) == before


@pytest.mark.parametrize("change", ["chmod 711", "chown 7", "touch -d 2001-01-01", "setfattr -n user.x -v y"])
def test_the_topmost_directory_of_a_filesystem(root_scene: RootScene, submount: Path, change: str) -> None:
    root_scene.run(f"{change} mounted")
    assert root_scene.left() == {"mounted": ("dir", True)}
    root_scene.run("touch mounted/x; rm mounted/x; ls mounted >&2")
    assert root_scene.left() == {}


def test_a_layer_over_a_filesystem_that_is_gone_is_refused(root_scene: RootScene, submount: Path) -> None:
    root_scene.run("echo x >mounted/new")
    layer = root_scene.layer
    subprocess.run(["umount", submount], check=True)
    try:
        with pytest.raises(Refused, match=r"made over a filesystem at .*mounted"):
            root_scene.run("true", "x", stack=Stack("/", (layer,)))
    finally:
        subprocess.run(["mount", "-t", "tmpfs", "takeback-test", submount], check=True)


def test_what_is_mounted_read_only_or_as_one_file_cannot_be_written(root_scene: RootScene) -> None:
    world = root_scene.world
    (world / "file").write_text("file")
    (world / "source").write_text("source")
    (world / "dir").mkdir()
    subprocess.run(["mount", "--bind", world / "source", world / "file"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "takeback-test", world / "dir"], check=True)
    try:
        root_scene.run("cat file; echo x >file; echo x >dir/x; echo -n x >source")
        assert root_scene.said().startswith("source")
        assert root_scene.said().count("Read-only file system") == 2
        assert root_scene.left() == {"source": ("x", True)}
    finally:
        subprocess.run(["umount", "-l", world / "file"], check=True)
        subprocess.run(["umount", "-l", world / "dir"], check=True)
    assert (world / "source").read_text() == "source"


@pytest.mark.able("user namespaces")
def test_an_ordinary_user_may_write_beside_what_another_mounted(home: Home) -> None:
    """In a mount namespace of its own, so that no other test sees the mount."""
    code = f"""
import os, subprocess, sys
sys.path[:0] = [{str(home.library)!r}]
import scenes
from pathlib import Path
subprocess.run(["mount", "-t", "tmpfs", "none", "/srv"], check=True)
os.chmod("/srv", 0o1777)
os.mkdir("/srv/home"); os.chown("/srv/home", 1000, 1000)
Path("/srv/other").write_text("other's"); os.mkdir("/srv/mounted"); os.symlink("other", "/srv/link")
subprocess.run(["mount", "-t", "tmpfs", "none", "/srv/mounted"], check=True)
Path("/srv/mounted/in").write_text("in")
scene = scenes.UserScene(scenes.Home(Path("/srv/home"), Path({str(home.library)!r}), {home.python!r}))
try:
    layers = ()
    for script in ("cat /srv/other /srv/link /srv/mounted/in; echo -n new >/srv/new; echo x >/srv/other;"
                   "echo -n w >mine; echo -n deep >/srv/home/x", "cat /srv/new mine /srv/home/x; rm /srv/new"):
        scene.run(script, stack=["/", layers], env={{"PATH": "/usr/bin:/bin"}})
        print(scene.said().replace(chr(10), "|"))
        print(sorted((one.path.decode().replace(str(scene.world), "W"), scenes.shown(one.source), one.below)
                     for one in scene.lefts()))
        layers = (scene.layer,)
    print(sorted(os.listdir("/srv")))
finally:
    scene.close()
"""
    told = subprocess.run(
        ["unshare", "-m", "--propagation", "private", home.python, "-I", "-B", "-c", code],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    said, left, again, removed, world = told.stdout.splitlines()
    assert said.startswith("other'sother'sin") and "Read-only file system" in said
    assert left == "[('/srv/home/x', 'deep', False), ('/srv/new', 'new', False), ('W/mine', 'w', False)]"
    assert again == "newwdeep"
    assert removed == "[('/srv/new', 'gone', True)]"
    assert world == "['home', 'link', 'mounted', 'other']"
