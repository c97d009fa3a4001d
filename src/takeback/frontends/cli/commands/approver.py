"""`approver`: who may approve, and the keys with which they prove it."""

import json
import os
import sys
from typing import Any

from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked, Command, Does, Subcommand, flag, option, positional
from takeback.frontends.cli.output.screen import clean
from takeback.frontends.cli.session.passphrase import passphrase_for

_PASSPHRASE = option("--passphrase-file", "FILE", "where its passphrase is; else it is asked for")
_PARTS = {
    "new": Subcommand(
        "make a key for a person, and print the lines that let it count",
        "takeback approver new bea",
        (
            positional("name", "NAME", "the person"),
            option(
                "--key",
                "FILE",
                "where the private key goes; else approvers/NAME.key beside your configuration",
            ),
            _PASSPHRASE,
            flag("--no-passphrase", "leave it open: for a file that no agent's user can read"),
            flag("--dry-run", "only say what it would do"),
        ),
    ),
    "list": Subcommand("list who may approve, and what proves it", "takeback approver list", ()),
    "sign": Subcommand(
        "sign a request that was printed elsewhere; needs no store",
        "takeback approver sign request.json --by bea --key bea.key > answer.json",
        (
            positional(
                "request", "FILE", "what `takeback approve ID --show-request` printed; - for standard input"
            ),
            option("--by", "NAME", "your name in [approvers]", required=True),
            option("--key", "FILE", "your private key", required=True),
            _PASSPHRASE,
            option("--answer", "WORDS", "the words that you are asked to type", default=""),
            flag("--deny", "say no"),
            option("--why", "WORDS", "the reason", default=""),
        ),
    ),
}


def _approver(asked: Asked) -> int:
    return {"new": _new, "list": _list, "sign": _sign}[asked.options.action](asked)


def _new(asked: Asked) -> int:
    from takeback.api.answers import new_key
    from takeback.storage.people_files import ADMINISTRATOR, user_file

    options, screen = asked.options, asked.screen
    name: str = options.name
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise Misuse(f"{name!r} is no name for an approver.", hint="Letters, digits, - and _.")
    file = options.key or os.path.join(os.path.dirname(user_file()), "approvers", f"{name}.key")
    if options.dry_run:
        return asked.would({"file": file}, f"Would make the key {clean(file)}.")
    secret = b"" if options.no_passphrase else passphrase_for(file, options.passphrase_file, new=True)
    public = new_key(file, secret)
    lines = f'[approvers.{name}]\nkey = "{public}"'
    screen.give({"name": name, "file": file, "key": public, "lines": lines})
    screen.say(f"Made {clean(file)}.")
    screen.say(f"An administrator adds to {ADMINISTRATOR}:\n\n{lines}\n")
    screen.hint(f"In {clean(user_file())} it counts too, but not as proven if agents run as the same user.")
    return 0


def _list(asked: Asked) -> int:
    from takeback.storage.people_files import files, people_here

    people = people_here()
    screen = asked.screen
    found: list[dict[str, Any]] = [
        {**one._asdict(), "proven_against": _proven_against(one.owner)} for one in people.approvers
    ]
    screen.give(
        {"approvers": found, "proven": people.proven, "webhooks": [one.name for one in people.webhooks]}
    )
    for one in people.approvers:
        ways = [name for name in ("key", "user", "role", "login") if getattr(one, name)]
        screen.say(f"{clean(one.name):<12} {', '.join(ways) or 'told only'}; {_proven_against(one.owner)}")
        screen.say(f"             from {clean(one.file)}")
    if not people.approvers:
        screen.say(f"No approvers are listed in {' or '.join(map(clean, files()))}.")
        screen.say("Anyone who is no agent may approve.")
    for hook in people.webhooks:
        answers = "answers count" if hook.key else "cannot answer"
        screen.say(f"webhook {clean(hook.name)}: {clean(hook.url)}, {answers}")
    screen.say(
        "Every approval needs a proven person." if people.proven else "Approvals need no proof, but say so."
    )
    return 0


def _proven_against(owner: int) -> str:
    if owner == -1:
        return "its key proves nothing: several users can write the list"
    if owner == 0:
        return "its key counts as proven against every agent that is not root"
    return f"its key counts as proven against agents that are neither root nor uid {owner}"


def _sign(asked: Asked) -> int:
    from takeback.api.answers import load_key, signed_answer

    options, screen = asked.options, asked.screen
    shown = read_json(options.request)
    secret = passphrase_for(options.key, options.passphrase_file)
    words = options.answer
    if not words and shown.get("challenge") and not options.deny and sys.stdin.isatty():
        request = shown.get("request", {})
        screen.say(f"{clean(str(request.get('summary')))}\nway back: {clean(str(request.get('plan')))}")
        words = input(f'Type "{clean(str(shown["challenge"]))}" to approve it: ')
    private = load_key(options.key, secret)
    message = signed_answer(shown, not options.deny, options.by, private, words, options.why)
    sys.stdout.write(json.dumps(message) + "\n")
    return 0


def read_json(path: str) -> dict[str, Any]:
    """A message from a file, or from standard input."""
    try:
        if path == "-":
            text = sys.stdin.read(1 << 20)
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read(1 << 20)
        found = json.loads(text)
    except OSError as error:
        raise Misuse(f"{clean(path)} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise Misuse(f"{clean(path)} is not JSON: {error}.", hint="Nothing was recorded.") from None
    if not isinstance(found, dict):
        raise Misuse(f"{clean(path)} is not a JSON object.", hint="Nothing was recorded.")
    return found  # pyright: ignore[reportUnknownVariableType]


COMMAND = Command(_approver, parts=_PARTS, does=Does.LOOKS)
