"""What is played in every agent, as data."""

from tests.agents.family import Edit, Read, Shell, Write
from tests.agents.play import Prompt, Scene

SCENES = (
    Scene(
        "edit",
        (Prompt("change the number", ((Read("src/app.py"),), (Edit("src/app.py", "    return 1", "    return 2"),))),),
        {"src/app.py": "def main():\n    return 2\n"},
    ),
    Scene("write", (Prompt("write a page", ((Write("docs/new.md", "new\n"),),)),), {"docs/new.md": "new\n"}),
    Scene(
        "shell",
        (Prompt("use the shell", ((Shell("echo made > made.txt; sed -i s/two/2/ README.md"),),)),),
        {"made.txt": "made\n", "README.md": "# project\nline 2\n"},
    ),
    Scene(
        "failing shell",
        (Prompt("fail", ((Shell("echo half > half.txt; exit 3"),),)),),
        {"half.txt": "half\n"},
    ),
    Scene(
        "deleted tree",
        (Prompt("clean up", ((Shell("rm -r docs"),),)),),
        {"docs": None, "docs/a.md": None, "docs/b.md": None, "docs/note.txt": None, "docs/empty": None},
    ),
)
