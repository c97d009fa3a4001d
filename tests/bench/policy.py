"""What a policy costs: a decision of 200 rules beside a loop over as many, and a command with and without a file."""

import os
import sys
import time
import tomllib
from collections.abc import Callable

from takeback.policy.cases import subject_given
from takeback.policy.decide import decide
from takeback.policy.parse import layer_from
from takeback.policy.rules import Level, Policy
from tests.bench.measure import Line, Table, Wishes, in_turns, processor_time

_RULES = 200
_TIMES = 200
_DECIDES = 0.0002  # seconds, at most, for 200 rules
_COMMAND = 0.003  # seconds more of a command that has a file
_WRITE = "import takeback; tb = takeback.open({store!r}); run = tb.run('x'); run.write({path!r}, {text!r}); run.close()"


def rules(count: int) -> str:
    """Of all kinds: paths, commands, statements, sizes."""
    matches = (
        'path = "/srv/app{0}/**"', 'command = "git push * --force{0}"', 'verb = "drop", table = "t{0}"',
        'agent = "agent{0}", kind = "delete"', 'path = "*.key{0}", files_over = {0}', 'tool = "mcp__tool{0}__*"',
        'label = "production{0}"', 'hours = "22:00-06:00", path = "/etc/{0}"',
    )  # fmt: skip
    text = "".join(
        f'[[rule]]\nname = "rule {n}"\nmatch = {{{matches[n % len(matches)].format(n)}}}\n'
        f'then = "hold"\nwhy = "It is {n}."\n'
        for n in range(count)
    )
    return '[labels]\nproduction1 = ["/srv/x", "/srv/y"]\n' + text


def measure(wishes: Wishes) -> Table:
    text = rules(_RULES)
    layer = layer_from(tomllib.loads(text), text, level=Level.USER, file="/f", digest="")
    policy = Policy((layer,))
    subject = subject_given(
        {"kind": ["write", "file"], "path": "/home/ann/src/app.py", "files": 1, "agent": "codex"}
    )

    def seconds(work: Callable[[], object]) -> float:
        began = time.perf_counter()
        for _ in range(_TIMES):
            work()
        return (time.perf_counter() - began) / _TIMES

    def loop() -> int:
        """What a loop over as many rules takes that looks at one text of each."""
        return sum(1 for rule in layer.rules if rule.name in "/home/ann/src/app.py")

    decided = in_turns(
        {"decide": lambda: seconds(lambda: decide(policy, subject)), "loop": lambda: seconds(loop)},
        wishes.rounds,
    )
    project = os.path.join(wishes.directory, "project")
    os.mkdir(project)
    store = os.path.join(wishes.directory, "store")
    count = iter(range(10**9))

    def written(with_file: bool) -> float:
        file = os.path.join(project, "takeback.toml")
        if with_file:
            with open(file, "w", encoding="utf-8") as made:
                made.write(text)
        elif os.path.exists(file):
            os.unlink(file)
        code = _WRITE.format(store=store, path=os.path.join(project, "a.txt"), text=str(next(count)))
        return processor_time([sys.executable, "-c", code])

    written(True)  # the copy in the store is made
    taken = in_turns({"with": lambda: written(True), "without": lambda: written(False)}, 3 * wishes.rounds)
    more = taken["with"] - taken["without"]
    lines = (
        Line(
            f"a decision of {_RULES} rules",
            decided["decide"],
            "s",
            f"{_DECIDES * 1000} ms",
            _DECIDES,
            1.0,
            "cost",
        ),
        Line("the same", decided["decide"], "s", "a loop over as many texts", decided["loop"], None, "cost"),
        Line(
            f"a write with {_RULES} rules: more, processor",
            more,
            "s",
            f"{_COMMAND * 1000} ms",
            _COMMAND,
            1.0,
            "cost",
        ),
        Line("a write with rules, processor", taken["with"], "s", "without", taken["without"], None, "cost"),
    )
    return Table("policy", lines)
