"""Compiles the hook of coding agents, `shim.c`, while takeback is built or installed. Without a compiler the wheel is
pure, and hooks run `shim.py`. `hatch_build.py [TARGET]` compiles it alone: to TARGET, or beside its source.

TAKEBACK_NO_COMPILER=1 builds without; CC names another compiler.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run alone, or by a test
    BuildHookInterface = object

SOURCE = Path(__file__).resolve().parent.parent / "src/takeback/frontends/agents/shim.c"
INSTALLED = "takeback/frontends/agents/shim"
FLAGS = ("-std=c11", "-O2", "-s")
NO_COMMAND = 64  # how it ends if it is given none


def compiled(target: Path, source: Path = SOURCE, more: Sequence[Sequence[str]] = (("-static",), ())) -> str:
    """Empty, or why there is none. Static where that can be: it starts faster, and runs where libc is another."""
    if os.environ.get("TAKEBACK_NO_COMPILER", "0") not in ("", "0"):
        return "TAKEBACK_NO_COMPILER is set"
    if sys.platform != "linux":
        return "it is for Linux"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    why = ""
    for flags in more:
        # A program that runs cannot be written to; a file that is put in its place can.
        fresh = target.with_name(f"{target.name}.{os.getpid()}")
        try:
            words = [*compiler, *FLAGS, *flags, "-o", fresh, source]
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode:
                why = (done.stderr.strip().splitlines() or [f"{compiler[0]} ended with {done.returncode}"])[0]
            elif subprocess.run([fresh], stdin=subprocess.DEVNULL, check=False).returncode != NO_COMMAND:
                why = "what was compiled does not run here"
            else:
                fresh.chmod(0o755)
                fresh.replace(target)
                return ""
        except OSError as error:
            why = f"{compiler[0]}: {error.strerror}"
        finally:
            fresh.unlink(missing_ok=True)
    return why


class CompiledShim(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        beside = SOURCE.with_suffix("")
        if version == "editable":
            self._say(compiled(beside), beside)
            return
        self._place = tempfile.TemporaryDirectory(prefix="takeback-shim-")
        target = Path(self._place.name, "shim")
        if why := compiled(target):
            self._say(why)
            return
        from packaging.tags import platform_tags

        # Of this machine: what other libc it runs on was not tried.
        platform = next(one for one in platform_tags() if one.startswith("linux_"))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][os.fspath(target)] = INSTALLED

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._place.cleanup()

    def _say(self, why: str, stale: Path | None = None) -> None:
        if why and stale:
            stale.unlink(missing_ok=True)
        if why:
            self.app.display_warning(f"The hook is not compiled: {why}. Hooks run Python.")


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE.with_suffix("")
    if trouble := compiled(place):
        place.unlink(missing_ok=True)
        print(
            f"set-up: the hook of coding agents is not compiled: {trouble}. Hooks run Python.",
            file=sys.stderr,
        )
