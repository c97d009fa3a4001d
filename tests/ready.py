"""A process that has the package loaded already and becomes a program: it starts in a tenth of the time.

What a test starts as `python -c …`, `python -m takeback …`, `python -m tests.…` or `python script.py` is forked from a
process that did nothing but import; it is a child of ours, so that waiting and killing are as with any other. It
differs from a started Python in nothing that a user sees: number, directory, variables, arguments, umask, files,
session and exit code are its own. What asks for more (options of Python, another locale, other limits) is started for
real, and so is every program of a test marked `real`, and everything where `TAKEBACK_TESTS_REAL` is set.
"""

import array
import ctypes
import gc
import json
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

ROOT = Path(__file__).parents[1]
_PATHS = "PYTHONPATH"
_ASKED = ("LC_", "LANG", "PYTHON")  # what Python looks at when it starts
_MODULES = ("takeback", "tests", "examples")  # `python -m` of these, and of what is in them
_FURTHER = ("psycopg", "pymysql", "redis")  # what the package imports inside functions
_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
_AS_SIBLING = 0x00008000  # CLONE_PARENT: the child is one of whoever started us
_LIMITS = sorted({number for name, number in vars(resource).items() if name.startswith("RLIMIT_")})


class Program(NamedTuple):
    """What the process becomes."""

    option: str  # "-c", "-m" or "" for a file
    what: str
    words: list[str]
    directory: str
    environment: dict[str, str]
    umask: int
    is_leader: bool  # of a session of its own
    handles: list[int]  # the numbers that the passed files get


class Ready:
    """The plugin. Only the process that runs the tests takes the short way, none that it forks."""

    def __init__(self) -> None:
        self.wanted = bool(_CLONE) and not os.environ.get("TAKEBACK_TESTS_REAL")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.wanted and session.items and not session.config.option.collectonly:
            _Popen.nest = _Popen.nest or _Nest()  # a session that one of ours forked leaves it alone
            subprocess.Popen = _Popen

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        _Popen.is_short = not item.get_closest_marker("real")

    def pytest_unconfigure(self) -> None:
        nest, _Popen.nest = _Popen.nest, None
        subprocess.Popen = _Started
        if nest:
            nest.end()


_Started = subprocess.Popen


class _Popen(_Started[Any]):
    nest: "_Nest | None" = None
    is_short = True

    def _execute_child(  # the one method of Popen that starts anything
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: Any, *more: Any,
    ) -> None:  # fmt: skip
        pipes, (_, gid, gids, uid, umask, is_leader, group) = more[:6], more[6:13]
        plain = not (
            executable or preexec_fn or shell or gid is not None or gids is not None or uid is not None
        )
        if plain and close_fds and umask == -1 and group == -1 and self.nest and self.is_short:
            handles = [
                pipes[place] if pipes[place] != -1 else number for number, place in enumerate((0, 3, 5))
            ]
            environment = os.environ if env is None else env
            program = _program(args, cwd, environment, is_leader, (0, 1, 2, *pass_fds))
            pid = program and self.nest.become(program, [*handles, *pass_fds])
            if pid:
                self.pid, self._child_created = pid, True
                self._close_pipe_fds(*pipes)  # pyright: ignore
                return
        _Started._execute_child(  # pyright: ignore
            self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, *more
        )  # fmt: skip


def _program(
    args: Any, cwd: Any, environment: Mapping[Any, Any], is_leader: bool, handles: Sequence[int]
) -> Program | None:
    """None: Python has to be started for that."""
    if isinstance(args, (str, bytes, os.PathLike)):
        return None
    words = [os.fsdecode(word) for word in args]
    directory = os.path.abspath(cwd or ".")
    if words[:1] != [sys.executable] or len(words) < 2 or not os.path.isdir(directory):
        return None
    option, what, *rest = words[1:] if words[1].startswith("-") else ["", *words[1:]]
    known = {"-c": True, "-m": what.split(".")[0] in _MODULES, "": what.endswith(".py")}
    if not known.get(option) or "\0" in "".join(words):
        return None
    os.umask(umask := os.umask(0o022))
    texts = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    return Program(option, what, rest, directory, texts, umask, is_leader, list(handles))


def _here() -> tuple[Any, ...]:
    """What a child has from us without being asked; the process that is ready has it from when it was started."""
    ignored = [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN]
    limits = [resource.getrlimit(number) for number in _LIMITS]
    return os.getpid(), os.getresuid(), os.getresgid(), ignored, signal.pthread_sigmask(0, ()), limits


def _asked(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_ASKED) and name != _PATHS}


class _Nest:
    """Starts the process when it is first needed."""

    def __init__(self) -> None:
        import takeback

        self._source = Path(takeback.__file__ or "").parents[1]
        self._environment = os.environ | {"LC_ALL": "C.UTF-8"}  # what each test has (tests/conftest.py)
        self._here, self._asked = _here(), _asked(self._environment)
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def become(self, program: Program, files: Sequence[int]) -> int | None:
        if (
            self._here != _here()
            or self._asked != _asked(program.environment)
            or not self._finds_ours(program)
        ):
            return None
        with self._lock, os.fdopen(os.memfd_create("program"), "w+b") as what:
            what.write(json.dumps(program).encode())
            what.flush()
            line = self._line or self._start()
            handles = array.array("i", [what.fileno(), *files])
            try:
                line.sendmsg([b"become"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handles)])
                return int(line.recv(100)) or None
            except (OSError, ValueError):
                return None  # it was killed

    def _finds_ours(self, program: Program) -> bool:
        """Whether a Python that is started there imports the package that is loaded here."""
        for path in program.environment.get(_PATHS, "").split(os.pathsep):
            if path and os.path.isdir(os.path.join(program.directory, path, "takeback")):
                return os.path.realpath(os.path.join(program.directory, path)) == os.path.realpath(
                    self._source
                )
        return self._source == ROOT / "src"

    def _start(self) -> socket.socket:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.ready import wait; wait()"
        environment = {name: value for name, value in self._environment.items() if name != _PATHS}
        with theirs:
            self._process = _Started(
                [sys.executable, "-c", code, str(self._source)],
                stdin=theirs.fileno(),
                env=environment,
                cwd="/",
            )
        return self._line

    def end(self) -> None:
        if self._line and self._process and self._here[0] == os.getpid():
            self._line.close()
            self._process.wait()


# -- in that process


def wait() -> None:
    """Import everything, and become each program that is asked for."""
    import importlib
    import pkgutil
    import runpy  # noqa: F401

    base = sys.path[2:]  # without "" and the root of the project
    sys.path[:] = [sys.argv[1], *base]
    import takeback
    import takeback.frontends.cli.answer

    for module in pkgutil.walk_packages(takeback.__path__, "takeback."):
        if ".testing" not in module.name and not module.name.endswith("__main__"):
            with suppress(ImportError):
                importlib.import_module(module.name)
    for name in _FURTHER:
        with suppress(ImportError):
            importlib.import_module(name)
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("tests", "pytest", "_pytest", "pluggy")
    ]:
        del sys.modules[name]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    line = socket.socket(fileno=os.dup(0))
    while True:
        message, handles, _, _ = socket.recv_fds(line, 100, 100)
        if not message:
            os._exit(0)
        pid = _fork()
        if not pid:
            _become(handles, base)
        line.send(str(pid).encode())
        for handle in handles:
            os.close(handle)


def _fork() -> int:
    """os.fork, but that the child's parent is our own."""
    libc, python = ctypes.PyDLL(None), ctypes.pythonapi
    flags = ctypes.c_long(_AS_SIBLING | signal.SIGCHLD)
    nothing = [ctypes.c_long(0)] * 4
    python.PyOS_BeforeFork()
    pid = libc.syscall(ctypes.c_long(_CLONE or 0), flags, *nothing)
    if pid:
        python.PyOS_AfterFork_Parent()
    else:
        python.PyOS_AfterFork_Child()
    return pid


def _become(received: list[int], base: list[str]) -> NoReturn:
    import fcntl

    code: object = 1
    try:
        what, *files = [fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, 512) for handle in received]
        os.closerange(0, 512)
        with open(what, "rb") as asked:
            asked.seek(0)
            program = Program(*json.load(asked))
        for handle, number in zip(files, program.handles, strict=True):
            os.dup2(handle, number)
        os.closerange(512, 1024)
        _take_on(program, base)
        code = _run(program)
    finally:
        _leave(code)


def _take_on(program: Program, base: list[str]) -> None:
    import time

    if program.is_leader:
        os.setsid()
    os.chdir(program.directory)
    os.umask(program.umask)
    os.environ.clear()
    os.environ.update(program.environment)
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [program.what if program.option == "" else program.option, *program.words]
    sys.orig_argv = [sys.executable, *filter(None, (program.option,)), program.what, *program.words]
    first = {"-c": "", "-m": program.directory}.get(
        program.option, os.path.dirname(os.path.realpath(program.what))
    )
    paths = program.environment.get(_PATHS, "").split(os.pathsep) if program.environment.get(_PATHS) else []
    sys.path[:] = [first, *(os.path.abspath(path) for path in paths), *base]
    sys.stdin = os.fdopen(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    if program.environment.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)  # pyright: ignore
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def _run(program: Program) -> object:
    """Its exit code."""
    import runpy
    from types import ModuleType

    main: Any = ModuleType("__main__")
    main.__builtins__ = sys.modules["builtins"]
    sys.modules["__main__"] = main
    try:
        if program.option == "-m":
            runpy._run_module_as_main(program.what)  # pyright: ignore
        else:
            name, text = "<string>", program.what
            if not program.option:
                main.__file__ = name = program.what
                text = Path(name).read_text()
            exec(compile(text, name, "exec"), vars(main))  # noqa: S102
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001  # as the interpreter does
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _leave(code: object) -> NoReturn:
    """As Python does."""
    import atexit

    threading._shutdown()  # pyright: ignore
    atexit._run_exitfuncs()  # pyright: ignore
    vars(sys.modules["__main__"]).clear()  # what it still has open is closed
    gc.collect()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):
        code = code or 120
    if isinstance(code, signal.Signals):
        signal.signal(code, signal.SIG_DFL)
        os.kill(os.getpid(), code)
    os._exit(code & 0xFF if isinstance(code, int) else 1)
