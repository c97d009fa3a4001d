"""A root filesystem small enough for a test: a shell, a few programs, and the libraries they need."""

import os
import re
import shutil
import subprocess
from pathlib import Path

PROGRAMS = ("sh", "cat", "ls", "mkdir", "rm", "mv", "ln", "touch", "true", "chmod")


def make_rootfs(place: Path) -> Path:
    for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "root", "usr"):
        (place / name).mkdir(parents=True)
    for program in PROGRAMS:
        found = os.path.realpath(shutil.which(program) or "")
        shutil.copy(found, place / "bin" / program)
        told = subprocess.run(["ldd", found], check=True, capture_output=True, text=True).stdout
        for library in re.findall(r"(/[^ ]+) \(0x", told):
            target = place / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy(library, target)
    (place / "etc" / "name").write_text("small\n")
    return place
