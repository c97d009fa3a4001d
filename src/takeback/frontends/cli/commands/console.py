"""`console`: a page in the browser that shows what happened and takes it back."""

import json
import sys
from typing import TYPE_CHECKING

from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked, Command, Does, filled, flag, number_of, option, repeated
from takeback.frontends.cli.output.screen import put_whole
from takeback.frontends.cli.session.store import nothing_recorded, nothing_yet, store_path
from takeback.model.words import install_hint

_LAST_PORT = 65535

if TYPE_CHECKING:
    from takeback.frontends.console.serve import Served, ServingWishes

_TEAM, _ACCOUNTS = "for a team", "accounts"
_ROLES = ("viewer", "approver", "operator")
_ARGUMENTS = (
    option("--port", "N", "the port (0: any free one)", type=number_of, default=0),
    option("--host", "ADDRESS", "the address to listen on (127.0.0.1)", type=filled, default="127.0.0.1"),
    flag("--open", "open it in the browser"),
    option(
        "--metrics-token",
        "FILE",
        "a program with the token in FILE may read /metrics (Authorization: Bearer …)",
        type=filled,
    ),
    flag("--team", "people sign in with accounts", _TEAM),
    option("--accounts", "FILE", "the accounts; else ~/.config/takeback/console.json", _TEAM, type=filled),
    repeated("--origin", "URL", "an address by which browsers reach it", _TEAM),
    option("--certificate", "FILE", "certificate for TLS", _TEAM, type=filled),
    option("--key", "FILE", "its private key", _TEAM, dest="tls_key", type=filled),
    option("--user-header", "NAME", "the header in which a proxy says who it is", _TEAM, type=filled),
    option("--socket", "PATH", "listen on this Unix socket, for the proxy", _TEAM, type=filled),
    option(
        "--proxy-secret",
        "FILE",
        "a secret that the proxy sends as X-Takeback-Proxy-Secret",
        _TEAM,
        type=filled,
    ),
    option(
        "--account",
        "NAME",
        "make or change an account, and end; asks for its password",
        _ACCOUNTS,
        type=filled,
    ),
    option("--role", "ROLE", "its role: viewer, approver or operator", _ACCOUNTS, choices=_ROLES),
    flag("--no-password", "for someone whom a proxy signs in", _ACCOUNTS),
    option("--remove-account", "NAME", "remove an account, and end", _ACCOUNTS, type=filled),
)


def _console(asked: Asked) -> int:
    options = asked.options
    if options.account or options.remove_account:
        return _accounts(asked)
    _refuse_without_extra()
    if nothing_yet(asked):
        raise Misuse(
            nothing_recorded(asked), hint="The first change makes the store; start the console after it."
        )
    return _serve(asked, _wishes(asked))


def _refuse_without_extra() -> None:
    from importlib.util import find_spec

    for name in ("jinja2", "starlette", "uvicorn"):
        if find_spec(name) is None:
            raise Misuse(f"The console needs {name}.", hint=install_hint("console"))


def _wishes(asked: Asked) -> "ServingWishes":
    from takeback.frontends.console.accounts import default_place
    from takeback.frontends.console.serve import ServingWishes, refuse_open

    options = asked.options
    accounts = (options.accounts or default_place()) if options.team or options.accounts else ""
    if options.port > _LAST_PORT:
        raise Misuse(
            f"There is no port {options.port}.", hint=f"Give 1 to {_LAST_PORT}, or 0 for any free one."
        )
    wishes = ServingWishes(
        options.host,
        options.port,
        options.socket or "",
        tuple(options.origin),
        accounts,
        options.user_header or "",
        options.proxy_secret or "",
        options.certificate or "",
        options.tls_key or "",
        options.metrics_token or "",
    )
    refuse_open(wishes)
    return wishes


def _serve(asked: Asked, wishes: "ServingWishes") -> int:
    import takeback.api
    from takeback.frontends.console.serve import serve

    told: list[Served] = []

    def tell(served: "Served") -> None:
        first = not told
        told.append(served)
        screen = asked.screen
        # Whole: the token in the link is for the reader, and it works once.
        if screen.json:
            put_whole(json.dumps({"address": served.address, "link": served.link}))
        elif first:
            screen.say(f"The console is at {served.address}. Ctrl-C ends it.")
        if served.link and not screen.json:
            put_whole(f"{'Open' if first else 'For another browser'}: {served.link}")
        sys.stdout.flush()
        if first and asked.options.open:
            import webbrowser

            webbrowser.open(served.link or served.address)

    with takeback.api.open(store_path(asked), recover=False) as tb:
        serve(tb, wishes, tell)
    return 0


def _accounts(asked: Asked) -> int:
    from takeback.frontends.console.accounts import Accounts, default_place
    from takeback.frontends.console.visitor import Role

    options = asked.options
    accounts = Accounts(options.accounts or default_place())
    if options.remove_account:
        accounts.remove(options.remove_account)
        asked.screen.give({"removed": options.remove_account})
        asked.screen.say(f"Removed the account {options.remove_account}; its sessions are over.")
        return 0
    if not options.role:
        raise Misuse("An account needs a role.", hint=f"--role {', '.join(_ROLES)}.")
    accounts.put(options.account, Role(options.role), None if options.no_password else _password())
    asked.screen.give({"account": options.account, "role": options.role, "file": accounts.place})
    asked.screen.say(f"{options.account} is {options.role} now, in {accounts.place}.")
    return 0


def _password() -> str:
    """Typed twice at a terminal, else one line of standard input."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    from getpass import getpass

    password = getpass("Password: ")
    if getpass("Again: ") != password:
        raise Misuse("The passwords differ.", hint="No account was changed.")
    return password


COMMAND = Command(_console, _ARGUMENTS, does=Does.LOOKS)
