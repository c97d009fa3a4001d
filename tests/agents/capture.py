"""A hook that records: `capture.py DIRECTORY AGENT EVENT`, the payload on standard input. Imports nothing of takeback.

`--exit N` and `--say TEXT` (standard error) and `--answer TEXT` (standard output), before the directory, make it a hook
that decides; for `PreToolUse`, `BeforeTool` and `tool.execute.before` only.
"""

import json
import os
import sys
import time

_BEFORE = ("PreToolUse", "BeforeTool", "tool.execute.before")


def main(words: list[str]) -> int:
    decided: dict[str, str] = {}
    while words[0].startswith("--"):
        name, value, *words = words
        decided[name] = value
    place, agent, event = words
    payload = sys.stdin.read()
    record = {
        "agent": agent,
        "event": event,
        "payload": json.loads(payload),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(_NAMES)},
        "cwd": os.getcwd(),
        "parent": os.getppid(),
    }
    name = f"{time.time_ns():020}-{os.getpid()}.json"
    with open(os.path.join(place, f".{name}"), "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.rename(os.path.join(place, f".{name}"), os.path.join(place, name))
    if not decided or event not in _BEFORE:
        return 0
    sys.stderr.write(decided.get("--say", ""))
    sys.stdout.write(decided.get("--answer", ""))
    return int(decided.get("--exit", "0"))


_NAMES = (
    "CLAUDE_PROJECT_DIR", "CLAUDE_PID", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_ENV_FILE",
    "CLAUDE_CODE_SESSION_ATTENDED", "CODEX_", "GEMINI_SESSION_ID", "GEMINI_PROJECT_DIR", "GEMINI_CWD", "OPENCODE_PID",
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
