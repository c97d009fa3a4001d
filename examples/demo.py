"""The story of takeback, for real, in a temporary directory. Every claim it prints is re-read from disk first.

Run it with `make demo`, or `python examples/demo.py`.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

import takeback

NGINX = "worker_processes 1;\nevents { worker_connections 512; }\n"
APP = '# The application.\n[server]\nport = 8000  # behind the proxy\nworkers = 2\n\n[log]\nlevel = "info"\n'
FLAGS = '{\n  "dark_mode": false,\n  "beta": false\n}\n'

CRASHING_AGENT = """
import os, signal, sys, takeback
tb = takeback.open(sys.argv[1])
with tb.run("migrate", agent="crashing") as run:
    run.write("app.toml", "half of a migration\\n")
    # Killed after the second file was replaced and before that was recorded: the worst moment there is.
    die = takeback.checks.after(lambda staged: os.kill(os.getpid(), signal.SIGKILL), name="die")
    run.write("flags.json", "the other half\\n", checks=[die])
"""


class Story:
    def __init__(self, root: str) -> None:
        self.world = os.path.join(root, "world")
        self.store = os.path.join(root, "store")
        self.false = 0
        os.mkdir(self.world)
        os.chdir(self.world)

    def chapter(self, title: str) -> None:
        print(f"\n{title}")

    def say(self, text: str) -> None:
        print(f"  {text}")

    def claim(self, text: str, holds: bool) -> None:
        """Printed as true only if it is."""
        print(f"  {'✔' if holds else '✘ NOT TRUE:'} {text}")
        self.false += not holds


def put(name: str, text: str) -> None:
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)


def read(name: str) -> str:
    with open(name, encoding="utf-8") as file:
        return file.read()


def everything() -> dict[str, str]:
    """Every path below, with what it holds."""
    found: dict[str, str] = {}
    for directory, names, files in os.walk("."):
        found |= {os.path.join(directory, name): "directory" for name in names}
        found |= {os.path.join(directory, name): read(os.path.join(directory, name)) for name in files}
    return found


def no_sandbox(tb: takeback.Takeback) -> str:
    """Why there is none on this machine; empty where there is one."""
    try:
        with tb.run("try", agent="demo") as run:
            run.command(["true"])
    except takeback.ResourceUnreachable as error:
        return str(error)
    return ""


def configure(story: Story, tb: takeback.Takeback) -> None:
    story.chapter("1. An agent changes three configuration files in one run.")
    with tb.run("tune the server", agent="deployer") as run:
        run.write("nginx.conf", NGINX.replace("512", "4096"))
        run.edit_config("app.toml", {"/server/workers": 8})
        run.edit_config("flags.json", {"/beta": True})
    story.claim("nginx.conf has the new limit", "4096" in read("nginx.conf"))
    story.claim("app.toml has 8 workers and kept its comments", read("app.toml") == APP.replace("= 2", "= 8"))
    story.claim(
        "flags.json has beta on, and only that differs",
        read("flags.json") == FLAGS.replace('"beta": false', '"beta": true'),
    )


def bad_write(story: Story, tb: takeback.Takeback) -> None:
    story.chapter("2. A bad write is stopped by its check, before anybody could read it.")
    before = read("flags.json")
    try:
        with tb.run("break the flags", agent="careless") as run:
            run.write("flags.json", '{"dark_mode": tru', checks=[takeback.checks.json()])
    except takeback.ValidationFailed as error:
        story.say(f"refused: {error}")
    story.claim("flags.json is untouched", read("flags.json") == before)


def silent_overwrite(story: Story, tb: takeback.Takeback) -> None:
    story.chapter("3. A silent overwrite is taken back.")
    before = read("nginx.conf")
    with tb.run("tidy up", agent="careless") as run:
        effect = run.write("nginx.conf", "# TODO\n")
    story.claim("nginx.conf was overwritten", read("nginx.conf") == "# TODO\n")
    tb.undo(effect)
    story.claim("nginx.conf is back, byte for byte", read("nginx.conf") == before)


def failing_run(story: Story, tb: takeback.Takeback) -> None:
    story.chapter("4. A run of several steps fails half-way and undoes itself.")
    before = {name: read(name) for name in ("nginx.conf", "app.toml", "flags.json")}
    try:
        with tb.run("big refactoring", agent="ambitious") as run:
            run.move("nginx.conf", "web.conf")
            run.delete("flags.json")
            run.mkdir("conf.d")
            run.write("conf.d/app.toml", "moved\n")
            raise RuntimeError("the model lost its way")
    except RuntimeError as error:
        story.say(f"the run failed: {error}")
    story.claim("every file is back where and what it was", {name: read(name) for name in before} == before)
    story.claim("nothing new is left", sorted(os.listdir()) == sorted(before))


def killed_process(story: Story) -> None:
    story.chapter("5. A process is killed with SIGKILL in the middle of a write, and recovery settles it.")
    before = {name: read(name) for name in ("app.toml", "flags.json")}
    dead = subprocess.run([sys.executable, "-c", CRASHING_AGENT, story.store], check=False)
    story.claim("the process was killed", dead.returncode == -signal.SIGKILL)
    story.claim("it left a half-made change behind", read("flags.json") == "the other half\n")
    started = time.monotonic()
    with takeback.open(story.store) as again:
        found = again.recover()
        took = time.monotonic() - started
        for settled in found:
            story.say(f"recovered: {settled.summary}: {settled.outcome}")
    story.claim(
        f"both files are back ({took * 1000:.0f} ms)", {name: read(name) for name in before} == before
    )


def one_early_change(story: Story, tb: takeback.Takeback) -> None:
    story.chapter("6. One early change is undone while later ones stay.")
    with tb.run("three edits", agent="deployer") as run:
        early = run.edit_config("app.toml", {"/server/port": 9000})
        run.edit_config("app.toml", {"/log/level": "debug"})
        run.write("notes.txt", "written later\n")
    tb.undo(early)
    text = read("app.toml")
    story.claim("the port is 8000 again", "port = 8000  # behind the proxy" in text)
    story.claim("the later edit of the same file stays", 'level = "debug"' in text)
    story.claim("the later file stays", read("notes.txt") == "written later\n")


def refused_undo(story: Story, tb: takeback.Takeback) -> None:
    story.chapter("7. Undo of something you have edited since is refused, and names the path.")
    with tb.run("write notes", agent="deployer") as run:
        effect = run.write("notes.txt", "the agent's text\n")
    put("notes.txt", "the agent's text\nand an hour of your own work\n")
    try:
        tb.undo(effect)
        story.claim("it was refused", False)
    except takeback.Conflict as error:
        story.say(f"refused: {error}")
        story.claim("it names the path", os.path.join(story.world, "notes.txt") in str(error))
    story.claim("your work is still there", "an hour of your own work" in read("notes.txt"))


def redo(story: Story, tb: takeback.Takeback) -> None:
    story.chapter("8. Undo is a change like any other: redo takes it back.")
    with tb.run("rename", agent="deployer") as run:
        effect = run.move("flags.json", "features.json")
    tb.undo(effect)
    story.claim(
        "undo: the old name is back", os.path.exists("flags.json") and not os.path.exists("features.json")
    )
    tb.redo()
    story.claim(
        "redo: the new name is back", os.path.exists("features.json") and not os.path.exists("flags.json")
    )


def failing_command(story: Story, tb: takeback.Takeback) -> None:
    story.chapter("9. Any command: one that fails changes nothing, one that ends well is one effect.")
    put("site.html", "<h1>Hello</h1>\n")
    before = everything()
    with tb.run("clean up", agent="careless") as run:
        outcome = run.command("rm -rf ./*; false")
    story.say(f"told to the agent: {outcome.text}")
    story.claim(f"it had deleted {len(outcome.changes)} files, and all are there", everything() == before)
    with tb.run("translate", agent="builder") as run:
        effect = run.command(
            "sed -i s/Hello/Hallo/ site.html; mkdir out; cp site.html out; rm notes.txt"
        ).effect
    story.claim("one that ended well is merged", read("out/site.html") == "<h1>Hallo</h1>\n")
    assert effect
    tb.undo(effect)
    story.claim("undo: every path is as before, and nothing new is left", everything() == before)


def held_command(story: Story, tb: takeback.Takeback) -> None:
    story.chapter("10. Look before it counts: a command's work is held until someone applies it.")
    with tb.run("publish", agent="builder") as run:
        held = run.command("echo published >> site.html", hold=True).effect
    assert held
    story.claim("nobody sees it yet", read("site.html") == "<h1>Hello</h1>\n")
    tb.apply(held)
    story.claim("applied: now it is there", read("site.html") == "<h1>Hello</h1>\npublished\n")


def session(story: Story, tb: takeback.Takeback) -> None:
    story.chapter(
        "11. A build agent's session: every command is a checkpoint, nobody sees it before the commit."
    )
    before = everything()
    with tb.run("build", agent="builder") as run, run.sandbox() as box:
        box.run("mkdir build && cd build && export NAME=report")
        box.run("echo one > $NAME.txt")
        box.run("echo two >> report.txt")
        failed = box.run("rm report.txt; no-such-program")
        story.say(f"told to the agent: {failed.text}")
        box.undo()
        story.claim("the last good command is taken back", box.run("cat report.txt").stdout == b"one\n")
        story.claim("the world has seen nothing", everything() == before)
        box.commit()
    story.claim("committed: exactly that is in the world", read("build/report.txt") == "one\n")


def in_place(story: Story, tb: takeback.Takeback) -> None:
    story.chapter(
        "12. In place: someone else's tool changes the files themselves, and is one effect all the same."
    )
    before = everything()
    with tb.run("their own tool", agent="editor") as run, run.watch(".") as watched:
        subprocess.run(["sh", "-c", "rm site.html; mkdir tmp; echo x > tmp/x"], check=True)
    story.claim("it was seen at once", not os.path.exists("site.html"))
    tb.undo(watched.effect)
    story.claim("undo: every path is as before, and nothing new is left", everything() == before)


def main() -> int:
    started = time.monotonic()
    story = Story(tempfile.mkdtemp(prefix="takeback-demo-"))
    print(f"Everything happens in {story.world}")
    for name, text in (("nginx.conf", NGINX), ("app.toml", APP), ("flags.json", FLAGS)):
        put(name, text)
    with takeback.open(story.store) as tb:
        configure(story, tb)
        bad_write(story, tb)
        silent_overwrite(story, tb)
        failing_run(story, tb)
        killed_process(story)
        one_early_change(story, tb)
        refused_undo(story, tb)
        redo(story, tb)
        if why := no_sandbox(tb):
            story.chapter("9 to 11 need a sandbox.")
            story.say(why)
            put("site.html", "<h1>Hello</h1>\n")
        else:
            failing_command(story, tb)
            held_command(story, tb)
            session(story, tb)
        in_place(story, tb)
        sound = tb.verify(read_data=True).sound
    story.chapter("Afterwards")
    story.claim("the store is sound: every record and every blob was read again", sound)
    story.claim("no scratch is left", not any(name.startswith(".takeback") for name in os.listdir()))
    command = os.path.join(os.path.dirname(sys.executable), "takeback")
    print(f"  {time.monotonic() - started:.1f} s in all. The store stays; look around in it:\n")
    for words in ("log", "show @", "diff @", "undo @", "status", "verify --read-data"):
        print(f"    {command} --store {story.store} {words}")
    if story.false:
        print(f"\n{story.false} claims did not hold.", file=sys.stderr)
    return 1 if story.false else 0


if __name__ == "__main__":
    sys.exit(main())
