"""Serve the console: where it listens, how one comes in, and what is refused because it would be open to others."""

import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.errors import Misuse, Refused, ResourceUnreachable
from takeback.frontends.console.accounts import Accounts
from takeback.frontends.console.entrance import Entrance
from takeback.frontends.console.figures import SlowFigures
from takeback.frontends.console.guard import ConsolePlace
from takeback.frontends.console.jobs import Jobs
from takeback.frontends.console.visit import Console
from takeback.runs.person import owner_of

if TYPE_CHECKING:
    from takeback.api import Takeback

_LOOKS = 0.05  # seconds between two looks whether it should end
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ServingWishes(NamedTuple):
    """As the command line has them."""

    host: str = "127.0.0.1"
    port: int = 0
    unix_socket: str = ""
    origins: tuple[str, ...] = ()  # addresses by which browsers reach it
    accounts: str = ""  # the file; "" if a link opens it
    user_header: str = ""
    secret_file: str = ""
    certificate: str = ""
    key: str = ""
    metrics_file: str = ""  # has the token of a program that collects the metrics


class Served(NamedTuple):
    """For the person at the terminal."""

    address: str
    link: str  # opens it once; "" if there are accounts
    end: Callable[[], None]  # ends the console; from any thread


def refuse_open(wishes: ServingWishes) -> None:
    """Before anything listens."""
    team = bool(wishes.accounts or wishes.user_header)
    away = not wishes.unix_socket and wishes.host not in _LOOPBACK
    secure = bool(wishes.certificate) or any(one.startswith("https://") for one in wishes.origins)
    if bool(wishes.certificate) != bool(wishes.key):
        raise Misuse("A certificate needs its key.", hint="Give both --certificate and --key.")
    if wishes.user_header and not (wishes.unix_socket or wishes.secret_file):
        raise Refused(
            f"Anyone who reaches {wishes.host} could send the header {wishes.user_header} and be anyone.",
            hint="Let the proxy connect to --socket PATH, or let it send a secret: --proxy-secret FILE.",
        )
    if away and not team:
        raise Refused(
            f"On {wishes.host} others can reach the console, and a link is for one person on this machine.",
            hint="Use accounts (--team) or a proxy (--user-header), or leave --host out.",
        )
    if away and not secure and not wishes.secret_file:
        raise Refused(
            f"On {wishes.host} passwords and sessions would cross the network unprotected.",
            hint="Give --certificate and --key, or --origin https://… of a proxy that has a certificate.",
        )
    if (wishes.unix_socket or away) and not wishes.origins:
        raise Misuse(
            "The address by which browsers reach the console is not known.",
            hint="For example --origin https://takeback.example.org.",
        )
    for one in wishes.origins:
        scheme, found, rest = one.partition("://")
        if not found or scheme not in ("http", "https") or not rest or "/" in rest:
            raise Misuse(
                f"{one!r} is no origin.", hint="For example https://takeback.example.org, without a path."
            )


def secret_in(path: str) -> str:
    """The shared secret, from a file that others cannot read."""
    try:
        with open(path, encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            secret = file.read(10_000).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(
            f"The secret in {path} cannot be read: {error}.", hint="Give a file with one line."
        ) from None
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise Refused(f"Others can read the secret in {path}.", hint=f"chmod 600 {path}")
    if len(secret) < 20:
        raise Misuse(
            f"The secret in {path} has {len(secret)} characters; it needs at least 20.",
            hint="For example: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return secret


def place_of(wishes: ServingWishes, port: int) -> ConsolePlace:
    scheme = "https" if wishes.certificate else "http"
    origins = set(wishes.origins)
    if not wishes.unix_socket and wishes.host in _LOOPBACK:
        origins |= {f"{scheme}://{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}
    hosts = {_host_of(one) for one in origins}
    return ConsolePlace(
        frozenset(hosts),
        frozenset(origins),
        f"takeback-{port}" if port else "takeback",
        is_secure=all(one.startswith("https://") for one in origins),
        proxy_secret=secret_in(wishes.secret_file) if wishes.secret_file else "",
        trusts_socket=bool(wishes.unix_socket),
        user_header=wishes.user_header,
        metrics_token=secret_in(wishes.metrics_file) if wishes.metrics_file else "",
    )


def _host_of(origin: str) -> str:
    return origin.partition("://")[2].lower()


@contextmanager
def listening(wishes: ServingWishes) -> Iterator[socket.socket]:
    if wishes.unix_socket:
        yield from _on_unix(wishes.unix_socket)
        return
    family = socket.AF_INET6 if ":" in wishes.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((wishes.host, wishes.port))
        except OSError as error:
            raise ResourceUnreachable(
                f"The console cannot listen on {wishes.host}:{wishes.port}: {error.strerror}.",
                hint="Give another --port, or none for any free one.",
            ) from None
        made.listen(128)
        yield made


def _on_unix(path: str) -> Iterator[socket.socket]:
    """For the proxy: its group may connect, no one else."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        before = os.umask(0o117)
        try:
            made.bind(path)
        except OSError as error:
            raise ResourceUnreachable(
                f"The console cannot listen on {path}: {error.strerror}.", hint="Give another path."
            ) from None
        finally:
            os.umask(before)
        made.listen(128)
        try:
            yield made
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)


def serve(tb: "Takeback", wishes: ServingWishes, tell: Callable[[Served], None]) -> None:
    """Until a signal comes. `tell` is called when it listens, and again with a new link after each use of one."""
    from takeback.frontends.console.app import application

    refuse_open(wishes)
    accounts = Accounts(wishes.accounts) if wishes.accounts else None
    if accounts is not None:
        accounts.roles()  # a file that cannot be read is said now
    apart = bool(tb.store.role) or owner_of(tb.store).uid not in (-1, os.getuid())
    entrance = Entrance(time.monotonic, accounts, bool(wishes.user_header), apart)
    console = Console(tb, entrance, Jobs(), SlowFigures())
    with listening(wishes) as made:
        port = 0 if wishes.unix_socket else made.getsockname()[1]
        place = place_of(wishes, port)
        scheme = "https" if place.is_secure else "http"
        address = wishes.origins[0] if wishes.origins else f"{scheme}://{wishes.host}:{port}"

        server = _server(wishes)

        def end() -> None:
            server.should_exit = True

        def link() -> None:
            token = f"{address}/enter?token={entrance.new_token()}" if entrance.takes_tokens else ""
            tell(Served(address, token, end))

        app, news = application(console, place, link)
        server.config.app = app
        link()
        _run(server, [made], news.end)
        console.jobs.finish()


def _server(wishes: ServingWishes) -> Any:
    import uvicorn

    config = uvicorn.Config(
        "",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=3,
        limit_concurrency=256,
        ssl_certfile=wishes.certificate or None,
        ssl_keyfile=wishes.key or None,
    )
    return uvicorn.Server(config)


def _run(server: Any, sockets: Sequence[socket.socket], end_streams: Callable[[], None]) -> None:
    """Until a signal, or until someone sets `should_exit`. The streams are ended first: no one would else."""
    import asyncio

    async def until_told() -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            server.should_exit = True

        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop)
        serving = asyncio.create_task(server._serve(list(sockets)))  # pyright: ignore[reportPrivateUsage]
        while not (server.should_exit or serving.done()):
            await asyncio.sleep(_LOOKS)
        end_streams()
        await serving

    asyncio.run(until_told())
