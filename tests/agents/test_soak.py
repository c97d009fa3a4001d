"""A thousand calls of one conversation, while the user works beside the agent."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.talk import Talk, talking

pytestmark = pytest.mark.agents

PROMPTS, CALLS = 25, 40
FILES = 40
EVERY = 100  # calls after which the user edits a file


def memory(process: int) -> int:
    """In kilobytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def a_call(talk: Talk, number: int) -> None:
    """By turns: change a file, make one and remove it with the next call, write by name, fail."""
    name = f"d{number % 7}/f{number % FILES}"
    match number % 5:
        case 0 | 1:
            talk.shell(f"echo {number} >> {name}")
        case 2:
            talk.shell(f"mkdir -p made && echo {number} > made/{number}")
        case 3:
            talk.shell(f"rm -f made/{number - 1}; mv {name} {name}.moved && mv {name}.moved {name}")
        case _:
            talk.write(name, f"{number}\n")


def test_a_thousand_calls(tmp_path: Path):
    with talking(tmp_path) as talk:
        for number in range(FILES):
            for part in range(7):
                file = talk.project / f"d{part}/f{number}"
                file.parent.mkdir(exist_ok=True)
                file.write_text(f"before {part} {number}\n")
        before = talk.files()
        talk.starts()
        used: list[int] = []
        for turn in range(PROMPTS):
            talk.prompts(f"prompt {turn}")
            for number in range(turn * CALLS, (turn + 1) * CALLS):
                a_call(talk, number)
                if number % EVERY == EVERY - 1:
                    talk.user.does(f"echo {number} >> {talk.project}/mine.txt")
            used.append(memory(talk.daemon()))
        daemon = talk.daemon()
        talk.says("Stop")

        kept = [one for one in talk.effects() if not one.change.facts.others]
        by_agent = [one for one in kept if "call" in one.change.args]
        assert len(by_agent) == PROMPTS * CALLS - sum(_changed_nothing(n) for n in range(PROMPTS * CALLS))
        assert used[-1] < used[2] * 1.25, f"the memory of the daemon grows: {used}"

        words = ["undo", "--session", "--merge", "--skip-conflicts"]
        more = [] if talk.knows else ["--", str(talk.project)]
        done = subprocess.run(
            [sys.executable, "-m", "takeback", *words, *more], cwd=talk.project, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        after = talk.files()
        if talk.knows:
            assert after.pop("mine.txt").split() == [str(n) for n in range(EVERY - 1, PROMPTS * CALLS, EVERY)]
        after.pop("mine.txt", None)
        assert after == before
        assert talk.daemon() == daemon, "the same one to the end"


def _changed_nothing(number: int) -> bool:
    """A file that was moved away and back, where nothing was made before."""
    return number % 5 == 3 and (number - 1) % 5 != 2
