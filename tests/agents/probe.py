"""What a command finds around itself, as JSON; it is run by `takeback run` and says whether the starter began it."""

import fcntl
import json
import os
import resource
import stat
import subprocess
import sys
from typing import Any

STATUS = (
    "Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs",
    "Seccomp", "Cpus_allowed_list", "Mems_allowed_list", "THP_enabled",
)  # fmt: skip


def seen() -> dict[str, Any]:
    with open("/proc/1/cmdline", "rb") as file:
        found: dict[str, Any] = {"sent": b"agents.starter" in file.read()}
    found["words"] = [ascii(word) for word in sys.argv[1:]]
    found["environment"] = sorted((ascii(name), ascii(value)) for name, value in os.environb.items())
    try:
        found["directory"] = os.getcwd()
    except OSError as error:
        found["directory"] = str(error)
    with open("/proc/self/status") as file:
        pairs = (line.rstrip("\n").partition(":") for line in file)
        found |= {name: value.strip() for name, _, value in pairs if name in STATUS}
    for name in ("limits", "cgroup", "oom_score_adj", "personality", "coredump_filter"):
        with open(f"/proc/self/{name}") as file:
            found[name] = file.read()
    found["nice"] = os.getpriority(os.PRIO_PROCESS, 0)
    found["scheduler"] = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    found["affinity"] = sorted(os.sched_getaffinity(0))
    found["io priority"] = subprocess.run(["ionice"], capture_output=True, text=True, check=False).stdout
    found["files"] = {number: _file(number) for number in range(3)}
    found["open"] = sorted(os.listdir("/proc/self/fd"))
    found["input"] = "" if os.isatty(0) else ascii(os.read(0, 100))
    found["stack"] = resource.getrlimit(resource.RLIMIT_STACK)
    return found


def _file(number: int) -> tuple[Any, ...]:
    status = os.fstat(number)
    return stat.S_IFMT(status.st_mode), fcntl.fcntl(number, fcntl.F_GETFL), os.isatty(number)


if __name__ == "__main__":
    found = json.dumps(seen(), indent=1)
    with open(os.environ["PROBE_OUT"], "w") as file:
        file.write(found)
    sys.stdout.buffer.write(b"out \xff\n")
    sys.stdout.flush()
    sys.stderr.write("err\n")
    code = int(os.environ.get("PROBE_END", "0"))
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)
