"""What the hook does: hands what the agent says to the daemon, and the answer back.

It runs at every call, in a bare interpreter, so it imports nothing but what is built in. Its exit codes: 0 proceed, 2
the call is denied. Before a call it denies whatever goes wrong; after one it never stops the agent.

A request is a line `takeback 1 HOST EVENT PID LENGTH LENGTH ROOT`, then the environment and the payload. The answer is
a line `EXIT LENGTH LENGTH`, then what goes to the standard output and to the standard error; or the line `again`, from
a daemon that makes room for another version.

Where a compiler made the wheel, `shim.c` does this when a daemon answers, and becomes this program when none does.
"""

import posix
import sys
from _socket import AF_UNIX, SOCK_STREAM, socket
from time import monotonic, sleep

BEFORE = (
    "PreToolUse", "preToolUse", "BeforeTool", "beforeShellExecution", "beforeMCPExecution", "tool.execute.before",
)  # fmt: skip
PLUGIN_SWITCH = "`claude plugin disable takeback@takeback` switches takeback off."
SDK = "claude-sdk"  # as the name of a host: hooks in a program, see takeback.integrations.claude
DENIED = 2
_BEFORE_SECONDS, _SECONDS = 280, 50  # less than hosts wait
_START_SECONDS = 20
_TIMES = 3  # that it is said: to a daemon that is ending, and to the next one
_TOLD = (
    "CLAUDE",
    "CODEX",
    "GEMINI",
    "OPENCODE",
    "CURSOR",
    "TAKEBACK",
    "XDG_",
    "TMPDIR",
    "HOME",
    "PWD",
    "PATH",
    "USER",
)
_MOST = 64 << 20  # bytes of a payload
_LATE = "its daemon did not answer in time."
ANSWERED = "answered"
ROOT = __file__.rsplit("/", 4)[0]  # where the package lies


def main(arguments: list[str]) -> int:
    """`HOST EVENT`, and from the compiled shim how far it came: the seconds that are left, or that it was answered."""
    host, event, how_far = (*arguments, "", "", "")[:3]
    before = event in BEFORE
    try:
        seconds = _BEFORE_SECONDS if before else _SECONDS
        answer = _read() if how_far == ANSWERED else _asked(host, event, float(how_far or seconds))
        exit, out, err = _understood(answer)
        _write(1, out)
        _write(2, err)
        return exit
    except Exception as error:  # noqa: BLE001 whatever it is, no call runs without an answer
        reason = str(error) if isinstance(error, Unanswered) else f"{type(error).__name__}: {error}"
        if not before:
            return 0
        _write(2, refusal(host, reason))
        return DENIED


class Unanswered(Exception):
    """With a sentence for a person."""


def refusal(host: str, reason: str) -> bytes:
    plugin = plugin_of(posix.environ.get(b"CLAUDE_PLUGIN_ROOT", b""))
    return (
        f"takeback did not let this call through, because it could not record a way back: {reason}\n"
        f"`takeback status` shows how it stands. {off_switch(host, plugin)}\n"
    ).encode("utf-8", "backslashreplace")


def plugin_of(root: bytes) -> bool:
    """Whether takeback's plugin lies there, whose hook this is then."""
    try:
        posix.stat(b"%s/hooks/takeback.sh" % root)
    except OSError:
        return False
    return bool(root)


def off_switch(host: str, plugin: bool = False) -> str:
    if plugin:
        return PLUGIN_SWITCH
    if host == SDK:
        return "takeback is on because the program calls `with_takeback`; without that call it is off."
    return f"`takeback hook uninstall {host}` switches takeback off."


def _asked(host: str, event: str, seconds: float) -> bytes:
    payload, environment = _read(), _environment()
    head = f"takeback 1 {host} {event} {posix.getppid()} {len(environment)} {len(payload)} {ROOT}\n"
    request = head.encode("utf-8", "surrogateescape") + environment + payload
    answer, until = b"", monotonic() + seconds
    for _ in range(_TIMES):
        if (left := until - monotonic()) <= 0:
            raise Unanswered(_LATE)
        answer = _exchanged(request, left)
        if answer not in (b"", b"again\n"):
            break
    return answer


def _understood(answer: bytes) -> tuple[int, bytes, bytes]:
    line, _, rest = answer.partition(b"\n")
    try:
        exit, out, err = map(int, line.split())
    except ValueError:
        raise Unanswered("its daemon ended before it answered.") from None
    if len(rest) != out + err:
        raise Unanswered("its daemon ended in the middle of an answer.")
    return exit, rest[:out], rest[out:]


def _read() -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := posix.read(0, 1 << 16):
        parts.append(part)
        size += len(part)
        if size > _MOST:
            raise Unanswered("what the agent said is too long.")
    return b"".join(parts)


def _environment() -> bytes:
    told = tuple(one.encode() for one in _TOLD)
    return b"\0".join(b"%s=%s" % pair for pair in posix.environ.items() if pair[0].startswith(told))


def store() -> bytes:
    """As `takeback` itself finds it."""
    env, home = posix.environ, posix.environ.get(b"HOME", b"")
    named = env.get(b"TAKEBACK_STORE", b"")
    if named:
        return home + named[1:] if named.startswith(b"~/") else named
    state = env.get(b"XDG_STATE_HOME", b"")
    if not state.startswith(b"/"):
        if not home:
            raise Unanswered("HOME is not set, so it is unknown where its store is.")
        state = home + b"/.local/state"
    return state + b"/takeback"


def _exchanged(request: bytes, seconds: float) -> bytes:
    connection = _connected()
    try:
        connection.settimeout(seconds)
        connection.sendall(request)
        parts: list[bytes] = []
        while part := connection.recv(1 << 16):
            parts.append(part)
        return b"".join(parts)
    except TimeoutError:
        raise Unanswered(_LATE) from None
    except (ConnectionResetError, BrokenPipeError):
        return b""  # one that was killed may still be reached for a moment
    except OSError as error:
        raise Unanswered(f"its daemon could not be reached ({error.strerror}).") from None
    finally:
        connection.close()


def _connected() -> socket:
    place = store() + b"/hooks"
    try:
        return _connection(place)
    except OSError:
        pass
    trouble = _started()
    waited = 0.0
    while True:
        try:
            return _connection(place)
        except OSError as error:
            if waited >= _START_SECONDS:
                raise Unanswered(f"its daemon did not start ({error.strerror}).") from None
        if said := trouble():
            # One that was quicker may be there by now.
            try:
                return _connection(place)
            except OSError:
                raise Unanswered(said) from None
        sleep(0.01)
        waited += 0.01


def _connection(place: bytes) -> socket:
    """By a handle of its directory: a path may be longer than a socket's name."""
    directory = posix.open(place, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.connect(b"/proc/self/fd/%d/socket" % directory)
    except OSError:
        connection.close()
        raise
    finally:
        posix.close(directory)
    return connection


def _started():  # type: ignore[no-untyped-def]  # pyright: ignore
    """Start the daemon, apart from the agent; what it says if it cannot run can be read with the result."""
    read, write = posix.pipe()
    child = posix.fork()
    if child == 0:
        try:
            posix.setsid()
            if posix.fork() == 0:
                null = posix.open(b"/dev/null", posix.O_RDWR)
                for fd in (0, 1, 2):
                    posix.dup2(null, fd)
                posix.dup2(write, 2)
                posix.chdir(b"/")
                code = (
                    "import sys; sys.path.insert(0, sys.argv[1]); from takeback.frontends.agents.daemon import main; "
                    "main(sys.argv[2])"
                )
                kept = (
                    b"HOME",
                    b"USER",
                    b"LOGNAME",
                    b"PATH",
                    b"LANG",
                    b"LC_ALL",
                    b"TZ",
                    b"TMPDIR",
                    b"XDG_STATE_HOME",
                )
                environment = {name: posix.environ[name] for name in kept if name in posix.environ}
                environment |= {b"TAKEBACK_STORE": store()}
                # The last word does nothing: by it the daemon is known among all processes.
                words = [sys.executable, "-I", "-c", code, ROOT, store(), "takeback.frontends.agents.daemon"]
                posix.execve(sys.executable, words, environment)
        finally:
            posix._exit(0)  # pyright: ignore[reportPrivateUsage]
    posix.close(write)
    posix.waitpid(child, 0)
    posix.set_blocking(read, False)
    said = b""

    def trouble() -> str:
        nonlocal said
        try:
            part = posix.read(read, 4096)
        except BlockingIOError:
            return ""
        said += part
        return "" if part else said.decode("utf-8", "replace").strip() or "its daemon ended at once."

    return trouble


def _write(fd: int, content: bytes) -> None:
    while content:
        content = content[posix.write(fd, content) :]
