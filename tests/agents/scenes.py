"""What is played in every agent, as data. `SCENES` are the list of issue 16; a scene's name is its own."""

from collections.abc import Mapping
from typing import Any

from tests.agents.acts import (
    agent_is_killed,
    daemon_is_killed,
    meet_first,
    release,
    user_appends,
    user_writes,
    wait_until_asked,
)
from tests.agents.family import Deed, Delegate, Edit, Notebook, Read, Rules, Shell, Write
from tests.agents.play import Prompt, Scene
from tests.agents.stage import Place

DIRECTORY = object()  # in a world: a directory that was not there


def scene(name: str, *turns: Deed | tuple[Deed, ...], wants: Mapping[str, Any], **more: Any) -> Scene:
    """Of one prompt, which has the name of the scene."""
    return Scene(name, (Prompt(name, tuple(map(turn, turns))),), wants, **more)


def turn(deeds: Deed | tuple[Deed, ...]) -> tuple[Deed, ...]:
    """A deed is a tuple itself; a tuple of deeds is what the model does at once."""
    return (deeds,) if isinstance(deeds, Deed) else deeds


_APP = "def main():\n    return 2\n"

FILES = (
    scene(
        "edit a file",
        Read("src/app.py"),
        Edit("src/app.py", "    return 1", "    return 2"),
        wants={"src/app.py": _APP},
    ),
    scene(
        "edit what is not there",
        Read("src/app.py"),
        Edit("src/app.py", "nothing of this is in it", "    return 2"),
        wants={},
    ),
    scene("write a file", Write("docs/new.md", "new\n"), wants={"docs/new.md": "new\n"}),
    scene(
        "write over a file",
        Read("docs/a.md"),
        (Write("docs/a.md", "agent\n"),),
        wants={"docs/a.md": "agent\n"},
        without=("codex", "codex-script"),  # it patches
    ),
    scene(
        "write outside",
        Write("../other/new.txt", "new\n"),
        wants={"../other/new.txt": "new\n"},
        without=("gemini",),  # it refuses paths outside the project
    ),
    scene(
        "edit a notebook",
        Shell(
            'echo \'{"cells":[{"cell_type":"code","id":"one","metadata":{},"outputs":[],"execution_count":null,'
            '"source":"1"}],"metadata":{},"nbformat":4,"nbformat_minor":5}\' > a.ipynb'
        ),
        Read("a.ipynb"),
        Notebook("a.ipynb", "one", "2"),
        wants={"a.ipynb": ...},
        without=("codex", "codex-script", "gemini", "opencode"),
    ),
)

SHELL = (
    scene(
        "use the shell",
        Shell("echo made > made.txt; sed -i s/two/2/ README.md"),
        wants={"made.txt": "made\n", "README.md": "# project\nline 2\n"},
    ),
    scene("fail in the shell", Shell("echo half > half.txt; exit 3"), wants={"half.txt": "half\n"}),
    scene(
        "delete a tree",
        Shell("rm -r docs"),
        wants=dict.fromkeys(("docs", "docs/a.md", "docs/b.md", "docs/note.txt", "docs/empty")),
    ),
    scene(
        "rename a file",
        Shell("mv src/old.py src/new.py"),
        wants={"src/old.py": None, "src/new.py": "OLD = True\n"},
    ),
    scene(
        "change modes and links",
        Shell("chmod 600 run.sh; ln -sfn run.sh link; ln README.md second.md; mkdir -p made/deep"),
        wants={
            "run.sh": ..., "link": ..., "README.md": ..., "second.md": "# project\nline two\n",
            "made": DIRECTORY, "made/deep": DIRECTORY,
        },
    ),
    scene(
        "change what is ignored",
        Shell("rm .env; rm -r build"),
        wants=dict.fromkeys((".env", "build", "build/out.o")),
    ),
    scene("write outside by shell", Shell("echo x > ../other/x.txt"), wants={"../other/x.txt": "x\n"}),
    scene("commit", Shell("git add -A && git -c user.name=a -c user.email=a@b commit -qm agent"), wants={}),
    scene(
        "change the directory",
        Shell("cd docs; export NAME=value"),
        Shell('echo "$NAME" > here.txt'),
        wants={"here.txt": "\n"},
        instead={"claude-code": {"docs/here.txt": "\n"}},
    ),
)  # fmt: skip

TOGETHER = (
    scene(
        "several at once",
        (Shell("echo a > a.txt"), Shell("echo b > b.txt"), Write("c.txt", "c\n")),
        wants={"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"},
    ),
    scene(
        "two at the same time",
        (Shell("echo a > a.txt; {a}; echo A >> a.txt"), Shell("echo b > b.txt; {b}; echo B >> b.txt")),
        wants={"a.txt": "a\nA\n", "b.txt": "b\nB\n"},
        meetings={"a": meet_first("b"), "b": meet_first("a")},
        without=("claude-code",),  # one after the other
    ),
    scene(
        "work in the background",
        Shell("echo begun > begun.txt; {job}; echo late > late.txt", background=True),
        Shell("echo other > other.txt"),
        wants={"begun.txt": "begun\n", "other.txt": "other\n", "late.txt": "late\n"},
        meetings={"job": None},
        between={("work in the background", 2): release("job")},
    ),
    scene(
        "leave a program running",
        Shell("setsid sh -c 'echo begun > begun.txt; {job}; echo late > late.txt' >/dev/null 2>&1 &"),
        Shell("echo other > other.txt"),
        wants={"begun.txt": "begun\n", "other.txt": "other\n", "late.txt": "late\n"},
        meetings={"job": None},
        between={("leave a program running", 2): release("job")},
    ),
    Scene(
        "delegate",
        (
            Prompt("delegate", ((Delegate("do a part of it"),), (Shell("echo main > main.txt"),))),
            Prompt("do a part of it", ((Shell("echo sub > sub.txt"),),), by="agent"),
        ),
        {"sub.txt": "sub\n", "main.txt": "main\n"},
        between={
            ("delegate", 2): wait_until_asked("do a part of it", 1)
        },  # in Codex both work at the same time
    ),
)

OTHERS = (
    scene(
        "user edits the same file",
        Shell("echo agent >> docs/a.md; {call}; echo more >> docs/a.md"),
        wants={"docs/a.md": "a\nagent\nuser\nmore\n"},
        meetings={"call": user_appends("docs/a.md", "user\n")},
    ),
    scene(
        "user edits another file",
        Shell("echo agent >> docs/a.md; {call}; echo more >> docs/a.md"),
        wants={"docs/a.md": "a\nagent\nmore\n", "docs/b.md": "user\n"},
        meetings={"call": user_writes("docs/b.md", "user\n")},
    ),
    scene(
        "user edits between calls",
        Shell("echo agent >> docs/a.md"),
        Shell("echo more >> docs/a.md; echo more >> docs/b.md"),
        wants={"docs/a.md": "a\nagent\nuser\nmore\n", "docs/b.md": "b\nmore\n", "docs/note.txt": "user\n"},
        between={
            ("user edits between calls", 1): lambda now: (
                user_appends("docs/a.md", "user\n")(now),
                user_writes("docs/note.txt", "user\n")(now),
            )
        },
    ),
)

RULES = Rules(denied="rm", asked="touch", allowed="mkdir")
APPROVALS = (
    scene("denied", Shell("rm docs/a.md"), wants={}, rules=RULES),
    scene("asked", Shell("touch asked.txt"), wants={}, rules=RULES, broken_off=("opencode",)),
    scene("allowed", Shell("mkdir made"), wants={"made": DIRECTORY}, rules=RULES),
)
# What the model hears (of opencode: what a person sees), by the agent's own rules.
DENIED = {
    "claude-code": "Permission to use Bash with command rm docs/a.md has been denied.",
    "codex": "rejected: policy forbids commands",
    "codex-script": "rejected: policy forbids commands",
    "gemini": "Tool execution denied by policy.",
    "cursor": "not allowed: deny",
    "opencode": "prevents you from using this specific tool call",
}
ASKED = {
    "claude-code": "requested permissions to use Bash, but you haven't granted it",
    "codex": "approval required by policy",
    "codex-script": "approval required by policy",
    "gemini": "requires user confirmation",
    "cursor": "not allowed: ask",
    "opencode": "permission requested: bash (touch asked.txt); auto-rejecting",
}

ENDS = (
    scene(
        "agent is killed",
        Shell("echo begun > begun.txt; {call}; echo late > late.txt"),
        wants={"begun.txt": "begun\n", "late.txt": "late\n"},
        meetings={"call": agent_is_killed},
        killed=True,
        instead={
            agent: {"begun.txt": "begun\n"}
            for agent in ("codex", "codex-script", "gemini", "opencode", "cursor")
        },  # it takes the shell along
    ),
    scene(
        "daemon is killed",
        Shell("echo begun > begun.txt; {call}; echo late > late.txt"),
        Shell("echo next > next.txt"),
        wants={"begun.txt": "begun\n", "late.txt": "late\n", "next.txt": "next\n"},
        meetings={"call": daemon_is_killed},
    ),
    Scene(
        "resume",
        (
            Prompt("begin it", ((Shell("echo one > one.txt"),), (Shell("echo two > two.txt"),))),
            Prompt("end it", ((Shell("rm one.txt; echo more >> two.txt"),),)),
        ),
        {"two.txt": "two\nmore\n"},
    ),
)

SCENES = FILES + SHELL + TOGETHER + OTHERS + APPROVALS + ENDS


def expect(place: Place, world: Mapping[str, Any], found: Mapping[str, str]) -> None:
    """That the differences found are those of a scene's world, and no others."""
    assert found.keys() == world.keys()
    for path, content in world.items():
        if content is None:
            assert found[path] == "gone"
        elif content is DIRECTORY:
            assert (place.project / path).is_dir()
        elif content is not ...:
            assert (place.project / path).read_text() == content
