"""`policy`: look at the rules, say what they answer, run their cases, let a file of a project count."""

import os
from typing import TYPE_CHECKING, Any

from takeback.errors import Misuse, Refused, TakebackError
from takeback.frontends.cli.command import BY, Asked, Command, Does, Subcommand, flag, positional
from takeback.frontends.cli.output.screen import clean, counted
from takeback.frontends.cli.session.store import nothing_yet, opened

if TYPE_CHECKING:
    from takeback.policy.rules import Layer

_FILES = positional("files", "FILE", "a policy file; else all that count here", nargs="*")
_PARTS = {
    "check": Subcommand("say what is wrong in the files that count here", "takeback policy check", (_FILES,)),
    "explain": Subcommand(
        "say which rule decided on an effect, and what counts now",
        "takeback policy explain @",
        (positional("id", "ID", "an effect"),),
    ),
    "test": Subcommand("run the cases of a file", "takeback policy test", (_FILES,)),
    "trust": Subcommand(
        "let a file of a project count exactly as it is now, also where it allows more",
        "takeback policy trust",
        (
            positional("files", "FILE", "the file; else takeback.toml of this project", nargs="*"),
            BY,
            flag("--dry-run", "only say what would count"),
        ),
    ),
    "new": Subcommand(
        "print a policy to begin with: laptop, ci or production",
        "takeback policy new laptop > takeback.toml",
        (positional("starter", "NAME", "laptop, ci or production"),),
    ),
}


def _policy(asked: Asked) -> int:
    does = {"check": _check, "explain": _explain, "test": _test, "trust": _trust, "new": _new}
    return does[asked.options.action](asked)


def _named(asked: Asked) -> list[tuple[str, Any]]:
    """Files with their levels: those that were given, else all that count in this directory."""
    from takeback.policy.rules import Level
    from takeback.runs.policies import ADMINISTRATOR, project_files_at, user_files

    users = user_files()
    found: list[tuple[str, Any]] = []
    given = [os.path.abspath(one) for one in asked.options.files]
    for file in given or [
        *(one for one in (ADMINISTRATOR, *users) if os.path.lexists(one)), *project_files_at(os.getcwd())
    ]:  # fmt: skip
        level = (
            Level.ADMINISTRATOR if file == ADMINISTRATOR else Level.USER if file in users else Level.PROJECT
        )
        found.append((file, level))
    return found


def _check(asked: Asked) -> int:
    from takeback.runs.policy_files import read_layer

    worst: TakebackError | None = None
    told: list[dict[str, Any]] = []
    for file, level in _named(asked):
        try:
            layer = read_layer(file, level)
        except TakebackError as error:
            worst = worst if worst and worst.exit_code >= error.exit_code else error
            told.append({"file": file, "ok": False, "error": str(error)})
            if not asked.screen.json:
                asked.screen.say(clean(str(error)))
            continue
        trusted = _is_trusted(asked, layer)
        told.append(_layer_json(layer, trusted))
        asked.screen.say(_layer_line(layer))
        if layer.loosens and not trusted:
            asked.screen.say("  It is not trusted, so only what tightens counts. What does not count:")
            for one in layer.loosens:
                asked.screen.say(f"  - {clean(one)}")
            asked.screen.hint("`takeback policy trust` lets it count exactly as it is")
    asked.screen.give({"files": told})
    if not told:
        asked.screen.say("No policy counts here: there is no file.")
        asked.screen.hint("`takeback policy new laptop > takeback.toml` makes one to begin with")
    if worst:
        raise type(worst)("The policy cannot be understood, so changes are refused until it is mended.", hint="The "
                          "lines above say where.") if not asked.screen.json else worst  # fmt: skip
    return 0


def _layer_line(layer: "Layer") -> str:
    parts = [
        counted(len(layer.rules), "rule"),
        counted(len(layer.budgets), "budget"),
        counted(len(layer.cases), "case"),
    ]
    return f"{clean(layer.file)} ({layer.level.name.lower()}): {', '.join(parts)}."


def _layer_json(layer: "Layer", trusted: bool) -> dict[str, Any]:
    return {
        "file": layer.file, "ok": True, "level": layer.level.name.lower(), "digest": layer.digest,
        "rules": [one.name for one in layer.rules], "budgets": [one.rule.name for one in layer.budgets],
        "cases": len(layer.cases), "loosens": list(layer.loosens), "trusted": trusted,
    }  # fmt: skip


def _is_trusted(asked: Asked, layer: "Layer") -> bool:
    from takeback.policy.rules import Level
    from takeback.runs.policy_files import is_trusted

    if layer.level is not Level.PROJECT or not layer.loosens:
        return True
    if nothing_yet(asked):
        return False
    with opened(asked._replace(looking=True)) as tb:
        return is_trusted(tb.store, layer.file, layer.digest)


def _explain(asked: Asked) -> int:
    from takeback.api import opened_of
    from takeback.engine.ruling import in_words, made_subject
    from takeback.model.ids import short
    from takeback.model.ruling import ruling_recorded
    from takeback.policy.decide import decide

    if nothing_yet(asked):
        raise Misuse(
            "There is no store yet, so there is no effect.", hint="`takeback policy test` asks about cases."
        )
    with opened(asked._replace(looking=True)) as tb:
        effect = tb.effect(asked.options.id)
        recorded = effect.phase.ruling
        parts = opened_of(tb).parts
        found = parts.rules(
            effect.run, tuple(one.resource for one in effect.targets) or (effect.change.resource,)
        )
        now = decide(found.policy, made_subject(parts, effect), found.conditions) if found else None
    asked.screen.give({
        "id": effect.id,
        "decided": ruling_recorded(recorded) if recorded else None,
        "now": ruling_recorded(now) if now else None,
        "files": [one.file for one in found.policy.layers] if found else [],
    })  # fmt: skip
    name = short(effect.id)
    if recorded:
        asked.screen.say(f"{name}: {clean(in_words(recorded))}")
    else:
        asked.screen.say(f"{name}: no rule decided on it.")
    if now is None:
        asked.screen.say("Today no policy counts for such a change.")
    elif now.rule:
        asked.screen.say(f"Today {clean(in_words(now))}")
    else:
        asked.screen.say("Today no rule matches such a change.")
    return 0


def _test(asked: Asked) -> int:
    from takeback.policy.cases import checked
    from takeback.runs.conditions import compiled
    from takeback.runs.policy_files import read_layer

    told: list[dict[str, Any]] = []
    wrong = 0
    for file, level in _named(asked):
        layer = read_layer(file, level)
        for one in checked(layer, compiled):
            wrong += not one.is_right
            told.append({
                "file": file, "line": one.case.line, "case": one.case.name, "ok": one.is_right,
                "expected": one.case.answer, "answer": one.ruling.answer.value, "rule": one.ruling.rule,
            })  # fmt: skip
            if not one.is_right:
                by = f" by {one.ruling.rule!r}" if one.ruling.rule else ""
                expected = f"{one.case.answer}{f' by {one.case.rule!r}' if one.case.rule else ''}"
                asked.screen.say(
                    f"{clean(file)}:{one.case.line}: {clean(one.case.name)}: {one.ruling.answer.value}{clean(by)}, "
                    f"expected {clean(expected)}"
                )
    asked.screen.give({"cases": told, "wrong": wrong})
    asked.screen.say(f"{counted(len(told), 'case')}, {wrong} wrong." if told else "There are no cases.")
    return 1 if wrong else 0


def _trust(asked: Asked) -> int:
    from takeback.policy.rules import Level
    from takeback.runs.agent_above import refuse_below_agent
    from takeback.runs.person import person_here
    from takeback.runs.policies import project_files_at
    from takeback.runs.policy_files import read_layer, refuse_untrustable, trust

    refuse_below_agent("policy trust")
    files = [os.path.abspath(one) for one in asked.options.files] or list(project_files_at(os.getcwd()))[-1:]
    if not files:
        raise Refused("There is no takeback.toml here.", hint="Name the file, or go to the project.")
    levels = dict(_named(asked._replace(options=_with(asked, files))))
    layers = [read_layer(one, levels.get(one, Level.PROJECT)) for one in files]
    for layer in layers:
        refuse_untrustable(layer)
        asked.screen.say(_layer_line(layer))
        for one in layer.loosens:
            asked.screen.say(f"  - {clean(one)}")
    told: dict[str, Any] = {"files": [{"file": one.file, "digest": one.digest} for one in layers]}
    if asked.options.dry_run:
        return asked.would(told, "It would be trusted exactly as it is now.")
    with opened(asked) as tb:
        person = person_here(tb.store, asked.options.by)
        for layer in layers:
            trust(tb.store, layer, person)
    asked.screen.give({**told, "trusted": True})
    asked.screen.say("Trusted exactly as it is now. A change of the file needs this again.")
    if not person.is_proven:
        asked.screen.say(f"Who said so is not proven: {clean(person.in_words())}.")
    return 0


def _with(asked: Asked, files: list[str]) -> Any:
    from argparse import Namespace

    return Namespace(**{**vars(asked.options), "files": files})


def _new(asked: Asked) -> int:
    from takeback.policy.starters import STARTERS

    text = STARTERS.get(asked.options.starter)
    if text is None:
        raise Misuse(
            f"There is no policy named {clean(asked.options.starter)!r}.",
            hint=f"It is one of: {', '.join(STARTERS)}.",
        )
    if asked.screen.json:
        asked.screen.give({"name": asked.options.starter, "policy": text})
    else:
        asked.screen.say(text.rstrip("\n"))
    return 0


COMMAND = Command(_policy, mixed=True, parts=_PARTS, does=Does.CHANGES)
