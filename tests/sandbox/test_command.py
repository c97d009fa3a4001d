"""How a command lives inside: its exit, its descriptors, its limits, what it can reach."""

import os
import signal
from pathlib import Path

import pytest

from takeback.errors import Misuse, ResourceUnreachable
from takeback.sandbox.protocol import Stack
from tests.sandbox.scenes import ENV, RootScene, Scene, UserScene, give, picture

pytestmark = pytest.mark.root


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 7", 7),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
        ("nosuchprogram", 127),
        ("/etc/passwd", 126),
    ],
)
def test_the_exit_is_told_as_a_shell_tells_it(scene: Scene, script: str, code: int) -> None:
    assert scene.run(script).exit_code == code
    words = script.split()
    if len(words) == 1:
        # The program itself, not by way of a shell; and nothing of ours among what it says.
        assert scene.run(*words, env=ENV, ask=True).exit_code == code


def test_a_program_that_is_not_there_says_nothing(root_scene: RootScene) -> None:
    ended = root_scene.run("nosuchprogram", "argument")

    assert ended.exit_code == 127 and root_scene.said() == ""
    assert root_scene.lefts() == []


def test_a_script_without_its_first_line_is_run_by_sh(scene: Scene) -> None:
    script = scene.world / "script"
    script.write_text("echo ran $1\n")
    script.chmod(0o755)

    assert scene.run("./script", "well").exit_code == 0
    assert scene.said() == "ran well\n"


def test_a_directory_that_is_not_there_is_the_callers_mistake(root_scene: RootScene) -> None:
    with pytest.raises(Misuse, match=r"cannot start in .*nowhere: No such file"):
        root_scene.run("true", "x", cwd=str(root_scene.world / "nowhere"))
    root_scene.close()
    assert os.listdir(root_scene.layers) == [] and os.listdir(root_scene.place) == []


def test_a_layer_that_cannot_get_its_name_is_told(root_scene: RootScene) -> None:
    with pytest.raises(ResourceUnreachable, match="could not be saved"):
        root_scene.sandbox.run(root_scene.order("true", "x"), Stack(), str(root_scene.layers / "no" / "such"))
    assert root_scene.run("true").exit_code == 0


@pytest.mark.parametrize("argv", [(), ("a\0b",)])
def test_a_command_that_cannot_be_one_is_refused(root_scene: RootScene, argv: tuple[str, ...]) -> None:
    with pytest.raises(Misuse):
        root_scene.sandbox.start(root_scene.order("x", "y")._replace(argv=argv), Stack(), "/nowhere")


def test_what_comes_in_and_goes_out_is_the_callers(root_scene: RootScene) -> None:
    there, here = os.pipe()
    back, out = os.pipe()
    err, said = os.pipe()
    try:
        running = root_scene.start("cat; echo error >&2; echo again >/dev/stdout", stdio=(there, out, said))
        os.write(here, b"through")
        os.close(here)
        here = -1
        assert running.wait().exit_code == 0
        assert os.read(back, 100) == b"throughagain\n"
        assert os.read(err, 100) == b"error\n"
    finally:
        for fd in (there, back, out, err, said, *((here,) if here >= 0 else ())):
            os.close(fd)


def test_the_callers_files_can_be_opened_again_by_their_descriptor(scene: Scene) -> None:
    assert scene.run("echo one >>/dev/stdout; echo two >>/dev/stderr").exit_code == 0
    assert scene.said() == "one\ntwo\n"


def test_no_descriptor_and_no_signal_of_ours_is_inherited(scene: Scene) -> None:
    program = "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"
    scene.run("python3", "-c", program)
    assert scene.said() == "[0, 1, 2]\n"

    scene.run("grep SigBlk /proc/self/status")
    assert scene.said().split() == ["SigBlk:", "0000000000000000"]
    scene.run("grep SigIgn /proc/self/status")
    ours = sum(1 << number - 1 for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ))
    assert int(scene.said().split()[1], 16) & ours == 0


def test_the_umask_and_the_environment_are_the_callers(root_scene: RootScene) -> None:
    before = os.umask(0o027)
    try:
        root_scene.run("umask; env | sort; pwd", env={"PATH": ENV["PATH"], "X": "é\udcff"})
    finally:
        os.umask(before)

    assert root_scene.said().startswith("0027\n")
    assert "\nX=é\udcff\n" in root_scene.said()
    assert root_scene.said().endswith(f"\n{root_scene.world}\n")


def test_a_command_that_takes_too_long_is_ended(scene: Scene) -> None:
    ended = scene.run("echo -n x >file; sleep 1000 & sleep 1000", timeout=0.3)

    assert (ended.exit_code, ended.stopped) == (124, "time")
    assert scene.left() == {"file": ("x", False)}


def test_one_that_does_not_want_to_end_is_ended_too(scene: Scene) -> None:
    ended = scene.run("trap '' TERM; sleep 1000; while :; do sleep 1000; done", timeout=0.3)

    assert (ended.exit_code, ended.stopped) == (124, "time")


def test_processes_left_in_the_background_are_counted_and_ended(scene: Scene) -> None:
    ended = scene.run("(sleep 1000; echo late >late) & setsid sleep 1000 & echo -n x >file")

    assert ended.exit_code == 0 and ended.leftover >= 2
    assert scene.left() == {"file": ("x", False)}


def test_orphans_are_no_leftovers_when_they_have_ended(scene: Scene) -> None:
    assert scene.run("(true &) ; (true &); sleep 0.2").leftover == 0


def test_a_signal_reaches_the_command_and_all_it_started(root_scene: RootScene) -> None:
    there, here = os.pipe()
    nothing = os.open("/dev/null", os.O_RDWR)
    try:
        running = root_scene.start(
            "trap 'echo got it; exit 9' TERM; echo ready; sleep 1000 & wait", stdio=(nothing, here, nothing)
        )
        assert os.read(there, 100) == b"ready\n"
        running.signal(signal.SIGTERM)
        assert running.wait().exit_code == 9
        assert os.read(there, 100) == b"got it\n"
    finally:
        for fd in (there, here, nothing):
            os.close(fd)


def test_several_commands_at_once_know_nothing_of_each_other(root_scene: RootScene) -> None:
    nothing = os.open("/dev/null", os.O_RDWR)
    try:
        order = root_scene.order("echo -n $$ >mine; ls", stdio=(nothing, nothing, nothing))
        layers = [str(root_scene.layers / f"l{number}") for number in range(6)]
        runnings = [root_scene.sandbox.start(order, Stack(), layer) for layer in layers]
        assert [running.wait().exit_code for running in runnings] == [0] * 6
    finally:
        os.close(nothing)
    assert not (root_scene.world / "mine").exists()
    for layer in layers:
        assert len(list(Path(layer).rglob("mine"))) == 1


def test_the_store_is_neither_visible_nor_writable(scene: Scene) -> None:
    store = scene.world / "store"
    store.mkdir()
    (store / "journal").write_text("the way back")

    scene.run("ls -A store; echo x >store/y; rm -rf store; rmdir store; mv store other; cat store/journal",
              hidden=(str(store),))  # fmt: skip

    assert "the way back" not in scene.said() and "journal" not in scene.said().split("\n")[0]
    assert scene.left() == {}
    assert os.listdir(store) == ["journal"]


def test_moving_a_directory_that_holds_the_store_is_refused_whole(root_scene: RootScene) -> None:
    store = root_scene.world / "a" / "b" / "store"
    store.mkdir(parents=True)

    with pytest.raises(Exception, match=r"moved .*/world/a, which holds the way back"):
        root_scene.run("mv a c", hidden=(str(store),))

    assert not Path(root_scene.layer).exists()
    assert store.is_dir()


def test_the_place_of_the_layers_is_covered_by_itself(scene: Scene) -> None:
    scene.run(f"ls -A {scene.place}; echo x >{scene.place}/x")
    assert "Read-only file system" in scene.said() or "Permission denied" in scene.said()
    assert scene.lefts() == []


def test_nothing_of_the_machine_can_be_changed_from_inside(root_scene: RootScene) -> None:
    knob = Path("/proc/sys/kernel/hostname").read_bytes()
    tries = (
        "mount -t tmpfs x /mnt", "umount /proc", "mount -o remount,rw /sys", "echo x >/proc/sys/kernel/hostname",
        "hostname other", "echo 1 >/sys/kernel/mm/ksm/run", "chmod 777 /dev/null", "mknod d b 254 0 && cat <d",
        "unshare -m true", "unshare -Urm sh -c 'mount -t tmpfs x /mnt'", "kill -9 1; test ! -d /proc/1",
        "chroot /proc/1/root/../../.. test -e /no", "date -s 2001-01-01", "cat /proc/kcore | grep .",
    )  # fmt: skip
    for one in tries:
        assert root_scene.run(one).exit_code != 0, one
    assert Path("/proc/sys/kernel/hostname").read_bytes() == knob


def test_proc_sys_dev_run_and_tmp_are_usable(scene: Scene) -> None:
    script = """
        set -e
        test "$(ls /proc | grep -c '^[0-9]')" -lt 10; test -r /proc/self/status
        ls /sys/class >/dev/null
        echo x >/dev/null; head -c 4 /dev/urandom | wc -c; : >/dev/shm/x
        mktemp >/dev/null; : >/tmp/tb-$$; test -d /run
        python3 -c 'import os, multiprocessing; multiprocessing.Lock(); os.openpty()'
    """
    assert scene.run(script).exit_code == 0, scene.said()
    assert not list(Path("/tmp").glob("tb-*"))


def test_without_a_network_there_is_only_oneself(scene: Scene) -> None:
    look = (
        "import socket; s=socket.create_server(('127.0.0.1',0)); socket.create_connection(s.getsockname());"
    )
    scene.run("python3", "-c", look + "print(len(socket.if_nameindex()))", network=False)
    assert scene.said() == "1\n"


def test_where_a_shell_ended_and_what_it_left_in_the_environment(scene: Scene) -> None:
    (scene.world / "sub dir").mkdir()
    give(scene.world)

    ended = scene.run(
        "cd 'sub dir'; export A='1\n2' B=\"q'\"; C=3; exit 4", ask=True, env={**ENV, "OLD": "o"}
    )

    assert ended.exit_code == 4 and ended.cwd == f"{scene.world}/sub dir"
    assert (ended.env["A"], ended.env["B"], ended.env["OLD"]) == ("1\n2", "q'", "o")
    assert not {"C", "_", "SHLVL", "__takeback_code"} & set(ended.env)
    assert ended.env["PWD"] == ended.cwd
    assert scene.said() == ""


@pytest.mark.parametrize(
    "script", ["exec true", "kill -9 $$", "(exit 5)", "set -e; false", "trap 'echo bye' 0", "fi"]
)
def test_however_a_shell_ends_it_is_known_where(scene: Scene, script: str) -> None:
    plain = scene.run(script, ask=False)
    ended = scene.run(script, ask=True, env={**ENV, "OLD": "o"})

    assert ended.exit_code == plain.exit_code
    assert ended.cwd == str(scene.world) and ended.env["OLD"] == "o"


def test_a_command_of_a_box_whose_directory_is_gone_has_an_empty_one(root_scene: RootScene) -> None:
    (root_scene.world / "a" / "b").mkdir(parents=True)
    cwd = str(root_scene.world / "a" / "b")

    ended = root_scene.run("cd ..; rmdir b; cd ..; rmdir a; cd /nowhere", ask=True, cwd=cwd)
    assert ended.cwd == str(root_scene.world)
    again = root_scene.run(
        "ls -A . ..; rm -rf ../* && cd /", ask=True, cwd=cwd, stack=Stack("/", (root_scene.layer,))
    )
    assert again.gone and again.cwd == "/"


def test_what_the_world_has_is_not_touched_by_anything_above(scene: Scene) -> None:
    for name in ("a", "b/c", "b/d/e"):
        (scene.world / name).parent.mkdir(parents=True, exist_ok=True)
        (scene.world / name).write_text(name)
    give(scene.world)
    before = picture(scene.world)

    scene.run(
        "rm -rf b; echo >a; mkdir b; chmod 0 b; touch -d 2000-01-01 .; mkdir -m 0 closed; find / -xdev | head -1"
    )

    assert picture(scene.world) == before


def test_an_ordinary_user_is_who_he_was(user_scene: UserScene) -> None:
    user_scene.run(
        "id -u; id -g; touch /etc/x; touch /x; chown 0 .; test -w /usr; grep CapEff /proc/self/status"
    )
    assert user_scene.said().startswith("1000\n1000\n")
    assert user_scene.said().split()[-1] == "0000000000000000"
    assert user_scene.lefts() == []


def test_a_memory_limit_holds_for_all_processes_together(root_scene: RootScene) -> None:
    ended = root_scene.run("python3", "-c", "x = bytearray(300 << 20)", memory=150 << 20)
    assert (ended.stopped, ended.exit_code) == ("memory", 137)

    # Each of the two has its share until the other has asked for too much.
    both = """
import os, signal
here, there = os.pipe()
child = os.fork()
if child:
    os.close(there)
    os.read(here, 1) or exit(1)
    share = bytearray(100 << 20)
    exit(1 if os.waitpid(child, os.WNOHANG)[0] else 0)
share = bytearray(100 << 20)
os.write(there, b"x")
signal.pause()
"""
    ended = root_scene.run("python3", "-c", both, memory=150 << 20)
    assert ended.stopped == "memory" and ended.exit_code in (1, 137)

    assert root_scene.run("python3", "-c", "x = bytearray(10 << 20)", memory=150 << 20).exit_code == 0


def test_an_ordinary_user_has_a_memory_limit_for_each_process(user_scene: UserScene) -> None:
    ended = user_scene.run("python3", "-c", "x = bytearray(300 << 20)", memory=200 << 20)
    assert ended.exit_code != 0
    assert user_scene.run("python3", "-c", "x = bytearray(10 << 20)", memory=200 << 20).exit_code == 0


def test_a_limit_of_processes(root_scene: RootScene) -> None:
    many = "import os\nfor n in range(50):\n  if not os.fork(): os.read(0, 1); os._exit(0)"
    assert root_scene.run("python3", "-c", many, processes=10).exit_code != 0
    assert "Resource temporarily unavailable" in root_scene.said()
