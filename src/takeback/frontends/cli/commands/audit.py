"""`audit`: who did what by whose leave; anchor the journal, prove that it was not changed, export evidence."""

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from takeback.api import Takeback, now, opened_of
from takeback.errors import Misuse, ResourceUnreachable
from takeback.frontends.cli.command import (
    DRY_RUN,
    Argument,
    Asked,
    Command,
    Subcommand,
    filled,
    flag,
    number_of,
    option,
    positional,
    repeated,
)
from takeback.frontends.cli.output.errors import as_field, told_trouble
from takeback.frontends.cli.output.screen import clean, counted, took, when
from takeback.frontends.cli.session.store import existing, nothing_yet, own_directory

if TYPE_CHECKING:
    from takeback.audit.anchors import AnchorCheck, Anchored, ProofLevel
    from takeback.audit.verifier import Anchor

_ANCHOR = repeated(
    "--anchor", "PLACE", "also this place of anchors: file:…, git:…, store:…; may be given several times"
)
_KEYS = repeated("--key", "FILE", "a public key that you vouch for; may be given several times")
_AUTHORITY = option(
    "--tsa-ca", "FILE", "the certificate of the time-stamp service, to check its stamps", default=""
)
_SECRET = option("--key", "FILE", "the private key; else the one of the settings", default="")
_REMARK = option(
    "--by", "NAME", "a remark on who does it; the user of the process is recorded anyway", default=""
)
_SINCE = option("--since", "TIME", "since then: 10m, 2h, 3d, 09:30, 2026-11-18", type=filled)
_UNTIL = option("--until", "TIME", "until then", type=filled)

_QUESTIONS: dict[str, str] = {
    "unapproved": "actions that needed an approval, and which of them ran without",
    "undone": "what was undone: when, by whom, how it was verified, what stays behind",
    "unknown": "actions whose outcome was unknown, and how that was resolved",
    "policies": "which policies were in force, and since when",
    "retention": "the oldest record, and what was given up by which rule",
    "rehearsals": "when a way back was last tried",
    "break-glass": "where a rule was passed by on someone's word",
}


def _questions() -> tuple[Argument, ...]:
    return tuple(flag(f"--{name}", help, "questions") for name, help in _QUESTIONS.items())


_PARTS = {
    "log": Subcommand(
        "list actions with their approvals, rules, outcome and verification; or answer one question",
        "takeback audit log src/app.py --since 2026-11-01 --until 2026-11-18",
        (
            positional("resource", "PATH", "only actions on this path or resource", nargs="?", type=filled),
            option(
                "--why", "ID", "all about one action: who and what authorised it", "questions", default=""
            ),
            *_questions(),
            option("--sample", "N", "N random actions with all their records", "questions", type=number_of),
            option(
                "--seed",
                "TEXT",
                "of the sample; the same seed chooses the same actions",
                "questions",
                default="1",
            ),
            option("--run", "R", "of this run", default=""),
            option("--agent", "A", "of this agent", default=""),
            option("--person", "NAME", "on which this person decided", default=""),
            _SINCE,
            _UNTIL,
            option("-n", "N", "at most N (100; 0: all)", type=number_of, default=100, dest="number"),
        ),
    ),
    "verify": Subcommand(
        "hash every record again and compare the journal with its anchors",
        "takeback audit verify --anchor file:/var/log/takeback/anchors --key audit.key.pub",
        (_ANCHOR, _KEYS, _AUTHORITY),
    ),
    "anchor": Subcommand(
        "sign the newest record and copy the signature elsewhere",
        "takeback audit anchor --to file:/var/log/takeback/anchors --to git:/srv/anchors.git",
        (
            repeated(
                "--to",
                "PLACE",
                "file:…, git:…, store:…, syslog:… or tsa:http://…; may be given several times",
            ),
            _SECRET,
            _REMARK,
            flag("--print", "print what is to be signed, for another user to sign"),
            option("--signed", "FILE", "take what another user has signed; - is standard input", default=""),
            DRY_RUN,
        ),
    ),
    "key": Subcommand(
        "make the key that signs anchors (new), show who can read it (show), or sign for another user (sign)",
        "takeback audit key new --out /root/takeback-audit.key",
        (
            positional("what", "new|show|sign", "what to do", choices=("new", "show", "sign")),
            option("--out", "FILE", "where the new key goes (else ~/.config/takeback/audit.key)", default=""),
            _SECRET,
            repeated(
                "--to",
                "PLACE",
                "keep a copy of what was signed here, and never sign what goes back behind it",
            ),
            DRY_RUN,
        ),
    ),
    "export": Subcommand(
        "write a bundle for an auditor: records, anchors, answers, plots, and a verifier",
        "takeback audit export evidence.tar.gz",
        (
            positional("target", "TO", "a new directory, or a file .tar.gz"),
            flag("--with-content", "with the contents that undo keeps; they may hold secrets"),
            option("--seed", "TEXT", "of the sample of 25 actions", default="1"),
            _ANCHOR,
            _KEYS,
            _AUTHORITY,
            DRY_RUN,
        ),
    ),
    "report": Subcommand(
        "show what the journal proves: level, key, last anchor, retention",
        "takeback audit report",
        (_ANCHOR, _KEYS, _AUTHORITY),
    ),
}


def _only_looks(options: Namespace) -> bool:
    if options.action in ("log", "verify", "report", "export"):
        return True
    return options.dry_run or (options.action == "anchor" and options.print)


def _audit(asked: Asked) -> int:
    does: dict[str, Callable[[Asked], int]] = {
        "log": _log, "verify": _verify, "anchor": _anchor, "key": _key, "export": _export, "report": _report,
    }  # fmt: skip
    return does[asked.options.action](asked)


def _looked(asked: Asked, tb: Takeback) -> "AnchorCheck":
    from takeback.api.proof import check_anchors

    options = asked.options
    return check_anchors(opened_of(tb), *options.anchor, keys=options.key, authority=options.tsa_ca)


# verify and report


def _verify(asked: Asked) -> int:
    from takeback.audit.anchors import damage
    from takeback.audit.export import proof_json

    screen, started = asked.screen, time.perf_counter()
    with existing(asked) as tb:
        look = _looked(asked, tb)
        level = _level(tb, look)
    for finding in look.judgement.findings:
        screen.say(screen.paint(f"damaged: {clean(finding.text)}", "red"))
    word = "Sound" if look.sound else counted(len(look.judgement.findings), "finding")
    screen.say(f"{word}: {counted(look.chain.last, 'record')} hashed again in {took(started)}.")
    _say_anchors(asked, look)
    errors = [ResourceUnreachable(one, hint="It was not compared.") for one in look.unreachable]
    if not look.sound:
        errors = [damage(look), *errors]
    told = proof_json(look, level) | {"records": look.chain.last}
    told["findings"] = [one._asdict() for one in look.judgement.findings]
    screen.give(told | as_field(screen, errors))
    return told_trouble(screen, errors)


def _say_anchors(asked: Asked, look: "AnchorCheck") -> None:
    screen = asked.screen
    if look.newest:
        since = f"; {counted(look.unanchored, 'record')} since then" if look.unanchored else ""
        screen.say(
            f"{counted(len(look.judgement.sound), 'anchor')} fit; the last, of {when(look.newest.at, now())}, covers "
            f"{counted(look.newest.seq, 'record')}{since}."
        )
    else:
        screen.say("No anchor fits: without one a journal that was rewritten whole, or cut, looks sound.")
    if look.stamp_words:
        screen.say(look.stamp_words)
    for note in look.judgement.notes:
        screen.say(f"Not compared: {clean(note)}" if "not compared" in note else f"Note: {clean(note)}")


def _level(tb: Takeback, look: "AnchorCheck") -> "ProofLevel":
    from takeback.api.proof import proof_level

    return proof_level(opened_of(tb), look)


def _report(asked: Asked) -> int:
    from takeback.audit.export import proof_json
    from takeback.audit.questions import retention

    screen = asked.screen
    with existing(asked) as tb:
        look = _looked(asked, tb)
        level, kept = _level(tb, look), retention(tb.store)
    screen.say(f"Journal: {counted(look.chain.last, 'record')}, {'sound' if look.sound else 'NOT SOUND'}.")
    screen.say(f"Level {level.level} of 3: {level.words}.")
    screen.say(f"Signed with: {clean(level.key.words)}.")
    last = (
        f"{when(level.last_anchor, now())}, {counted(level.anchored, 'record')}"
        if level.last_anchor
        else "never"
    )
    screen.say(f"Last anchored: {last}.")
    for place in level.places:
        can = "the agent's user can change it" if place.agent_changes else "the agent's user cannot change it"
        screen.say(
            f"  {clean(place.place)}: {clean(place.trouble) or counted(place.anchors, 'anchor')}; {can}"
        )
    screen.say(
        f"Kept since {when(kept.oldest, now())}; no record is ever deleted. audit_days is {kept.days}."
    )
    for weak in level.weaknesses:
        screen.say(screen.paint(f"weak: {clean(weak)}", "yellow"))
    if kept.days < 183:
        screen.hint("Six months as a rule: `takeback config set audit_days 183`.")
    given_up = {**kept.forgotten, "drops erased": kept.erased, "contents redacted": kept.redacted}
    told = {"oldest": kept.oldest, "records": kept.records, "audit_days": kept.days, "given_up": given_up}
    screen.give(proof_json(look, level) | {"retention": told})
    return 0 if look.sound else 6


# anchor and key


def _anchor(asked: Asked) -> int:
    from takeback.api.proof import anchor, keep_signed, statement
    from takeback.audit.anchor_places import place_named

    options = asked.options
    for place in options.to:
        place_named(place)
    with existing(asked) as tb:
        opened = opened_of(tb)
        if options.print or options.dry_run:
            return _state(asked, statement(opened, *options.to, key=options.key))
        if options.signed:
            made = keep_signed(opened, _read(options.signed), *options.to, by=options.by)
        else:
            made = anchor(opened, *options.to, key=options.key, by=options.by)
    return _tell_anchored(asked, made)


def _state(asked: Asked, stated: "Anchor") -> int:
    from takeback.audit.anchor_places import line_of
    from takeback.audit.verifier import anchor_json

    if asked.options.print and not asked.screen.json:
        sys.stdout.write(line_of(stated) + "\n")
        return 0
    return asked.would(
        {"anchor": anchor_json(stated)},
        f"Would sign anchor {stated.number}: {counted(stated.seq, 'record')}.",
    )


def _tell_anchored(asked: Asked, made: "Anchored") -> int:
    from takeback.audit.anchors import failure
    from takeback.audit.verifier import anchor_json

    screen, anchor = asked.screen, made.anchor
    errors = [failure(made)] if made.failed else []
    told: dict[str, Any] = {
        "anchor": anchor_json(anchor), "new": made.is_new, "places": list(made.places),
        "failed": [{"place": place, "why": why} for place, why in made.failed],
    }  # fmt: skip
    screen.give(told | as_field(screen, errors))
    if not made.is_new:
        screen.say(f"Nothing was recorded since anchor {anchor.number} of {when(anchor.at, now())}.")
        return 0
    screen.say(f"Anchor {anchor.number} signed: {counted(anchor.seq, 'record')}.")
    for place in made.places:
        screen.say(f"  {clean(place)}")
    if not made.places and not made.failed:
        screen.hint(
            "Only the journal has it. --to PLACE, or anchors in [audit] of config.toml, copies it elsewhere."
        )
    return told_trouble(screen, errors)


def _read(path: str) -> "Anchor":
    from takeback.audit.verifier import anchor_from

    try:
        if path == "-":
            text = sys.stdin.read()
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read(1 << 20)
        return anchor_from(json.loads(text))
    except OSError as error:
        raise Misuse(
            f"{path} cannot be read: {error.strerror}.", hint="Give a file that is there, or -."
        ) from None
    except ValueError as error:
        raise Misuse(
            f"{'Standard input' if path == '-' else path} is no anchor: {error}.",
            hint="`takeback audit anchor --print` prints one to be signed.",
        ) from None


def _key(asked: Asked) -> int:
    if asked.options.what == "sign":
        return _sign(asked)
    from takeback.audit.anchor_places import settings_here
    from takeback.audit.keys import make, reach, refuse_near, usual_path
    from takeback.audit.verifier import fingerprint

    screen, options = asked.screen, asked.options
    if options.what == "new":
        path = os.path.abspath(options.out or usual_path())
        if options.dry_run:
            refuse_near(path, own_directory(asked))
            return asked.would({"path": path}, f"Would make the key {clean(path)}.")
        make(path, own_directory(asked))
    else:
        path = options.key or settings_here().key
        if not path:
            raise Misuse("No key is set up.", hint="`takeback audit key new` makes one.")
    found = reach(path, os.geteuid())
    shown = fingerprint(found.key)
    screen.give(
        {
            "path": path,
            "public": f"{path}.pub",
            "key": found.key,
            "fingerprint": shown,
            "agent_reads": found.agent_reads,
        }
    )
    if options.what == "new":
        screen.say(f"Made the key {clean(path)}, and its public half {clean(path)}.pub ({shown}).")
        screen.say(
            "Keep a copy of the public half where no agent can change it: it is what proves a signature."
        )
    screen.say(f"{found.words[:1].upper()}{found.words[1:]}.")
    if found.agent_reads:
        screen.hint(
            "Agents that run as another user than this one cannot sign; or keep the key with another user."
        )
    return 0


def _sign(asked: Asked) -> int:
    """For another user: what `audit anchor --print` printed comes in, and goes out signed."""
    from takeback.api.proof import signed_here
    from takeback.audit.anchor_places import line_of

    made = signed_here(_read("-"), asked.options.to, asked.options.key, dry_run=asked.options.dry_run)
    if asked.options.dry_run:
        return asked.would(
            {"seq": made.seq}, f"Would sign anchor {made.number}: {counted(made.seq, 'record')}."
        )
    sys.stdout.write(line_of(made) + "\n")
    return 0


# export


def _export(asked: Asked) -> int:
    from takeback.audit.export import BundleWish, export

    screen, options = asked.screen, asked.options
    with existing(asked) as tb:
        if options.dry_run:
            count = tb.store.journal.newest()
            return asked.would(
                {"records": count}, f"Would export {counted(count, 'record')} to {clean(options.target)}."
            )
        look = _looked(asked, tb)
        made = export(
            tb.store, look, _level(tb, look), BundleWish(options.target, options.with_content, options.seed)
        )
    screen.give(made._asdict() | {"sound": look.sound})
    blobs = f" and {counted(made.blobs, 'blob')}" if options.with_content else ""
    screen.say(f"Exported {counted(made.records, 'record')}{blobs} to {clean(made.path)}.")
    screen.say(f"Digest of its manifest: {made.digest}")
    if not look.sound:
        screen.say(screen.paint("The journal is not sound; the bundle says so, and where.", "red"))
    screen.hint("Send the digest another way than the bundle. `python3 verify.py` in it checks it anywhere.")
    return 0


# log


def _log(asked: Asked) -> int:
    from takeback.frontends.cli.output.audit_answers import answer

    if nothing_yet(asked):
        from takeback.frontends.cli.session.store import tell_nothing

        return tell_nothing(asked, [])
    with existing(asked) as tb:
        return answer(asked, tb, tuple(_QUESTIONS))


COMMAND = Command(_audit, mixed=True, parts=_PARTS, only_looks=_only_looks, long=True)
