"""The report of a bundle as one page of HTML: no script, nothing from elsewhere, each question one section."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from takeback.audit.figures import ActivityFigures, bars_svg, median, over_time, waits_in_groups

_STYLE = """
:root { --text: #1b1f24; --back: #fff; --line: #d0d7de; --dim: #57606a; --one: #2563a8; --two: #b45309;
  --three: #2e7d46; --four: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --back: #14171b; --line: #363c44; --dim: #9aa4af;
  --one: #6aa9e9; --two: #e0a04f; --three: #6fc28a; --four: #f2857c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 0 auto;
  max-width: 76rem; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-top: 1px solid var(--line);
  padding-top: 1rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); }
td { overflow-wrap: anywhere; } th { color: var(--dim); font-weight: 600; }
.dim, figcaption { color: var(--dim); } .bad { color: var(--four); font-weight: 600; } .good { color: var(--three); }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--dim); }
.actions, .answers { fill: var(--one); } .undos { fill: var(--two); } .approved { fill: var(--three); }
.denied { fill: var(--four); } .axis { stroke: var(--dim); } .grid { stroke: var(--line); }
code { font: 13px ui-monospace, monospace; } ul { padding-left: 1.2rem; }
"""
_MOST_ROWS = 500


def safe(value: Any) -> str:
    """Text of anybody, for the page: what steers a terminal, or turns the direction of writing, shows as its number."""
    text = "" if value is None else "yes" if value is True else "no" if value is False else str(value)
    shown = "".join(one if one.isprintable() or one == "\n" else f"\\u{ord(one):04x}" for one in text)
    return escape(shown)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], none: str) -> str:
    listed = list(rows)
    if not listed:
        return f'<p class="dim">{safe(none)}</p>'
    head = "".join(f'<th scope="col">{safe(one)}</th>' for one in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{safe(one)}</td>' for one in row)}</tr>" for row in listed[:_MOST_ROWS]
    )
    more = (
        f'<p class="dim">{len(listed) - _MOST_ROWS:,} more in answers.json.</p>'
        if len(listed) > _MOST_ROWS
        else ""
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'
    )


def page(answers: dict[str, Any], found: ActivityFigures) -> str:
    about = answers["about"]
    span = f"{about['records']:,} records from {safe(about['from'])} to {safe(about['to'])}"
    sections = "".join(
        f"<section><h2>{safe(title)}</h2>{body}</section>" for title, body in _sections(answers)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width, initial-scale=1"><meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>takeback audit report</title><style>{_STYLE}</style></head><body>"
        f"<h1>What agents did, and what was taken back</h1><p>Store <code>{safe(about['name'])}</code>: {span}. All "
        "times are UTC. The records, their hashes and the signatures lie beside this page; <code>python3 "
        f"verify.py</code> checks them.</p>{_plots(found)}{sections}</body></html>\n"
    )


def _plots(found: ActivityFigures) -> str:
    waits = (
        f"{len(found.waits):,} answers, half of them within {median(found.waits):,} s"
        if found.waits
        else "no answers"
    )
    pictures = (
        ("Actions", bars_svg("Actions", over_time(found, "actions"))),
        ("Undos and redos", bars_svg("Undos", over_time(found, "undos"))),
        ("Approvals: given, and refused", bars_svg("Approvals", over_time(found, "approved", "denied"))),
        (f"Time until an answer ({waits})", bars_svg("Response times", waits_in_groups(found.waits))),
    )
    return "".join(f"<figure><figcaption>{safe(title)}</figcaption>{svg}</figure>" for title, svg in pictures)


def _cells(listed: Iterable[dict[str, Any]], *names: str) -> list[list[Any]]:
    return [[one.get(name) for name in names] for one in listed]


def _sections(answers: dict[str, Any]) -> list[tuple[str, str]]:
    """One for each question, in the order in which auditors ask them."""
    return [
        ("1. Actions on a resource, in a time", _counted(answers)),
        ("2. Who authorised an action, what they saw, and was it what ran", _sample(answers)),
        ("3. Actions that ran without an approval that was required", _unapproved(answers["approvals"])),
        ("4. Undone actions", table(
            ("undo", "of", "what", "at", "run", "why", "state", "verified", "what stays behind"),
            _cells(answers["undone"], "undo", "of", "summary", "at", "run", "why", "state", "verified", "residue"),
            "Nothing was undone.",
        )),
        ("5. Unknown outcomes, and how they were resolved", table(
            ("effect", "at", "what", "state", "resolution"),
            _cells(answers["unknown"], "id", "at", "summary", "state", "resolution"),
            "No outcome was unknown.",
        )),
        ("6. Proof that the log was not altered or cut", _proof(answers["proof"])),
        ("7. Policies in force", _said(answers["policies"], "No policy was recorded.")),
        ("8. Who acted", table(("agent", "runs"), answers["agents"], "No agent was recorded.")),
        ("9. Retention", _retention(answers["retention"])),
        ("10. A sample, with all that was recorded", f"<p>{len(answers['sample']):,} actions, chosen by the seed "
         f"<code>{safe(answers['seed'])}</code>; their records are in answers.json.</p>"),
        ("11. Restores that were tried", _said(
            answers["rehearsals"], "No rehearsal was recorded: `takeback rehearse` tries a way back on a copy."
        )),
        ("12. Rules that were passed by on someone's word", table(
            ("at", "what", "by", "about"), _cells(answers["break_glass"], "at", "what", "by", "about"), "None."
        )),
    ]  # fmt: skip


def _said(records: Iterable[dict[str, Any]], none: str) -> str:
    rows = [
        (
            one["seq"],
            one["at"],
            ", ".join(f"{name}: {value}" for name, value in one.items() if name not in ("seq", "kind", "at")),
        )
        for one in records
    ]
    return table(("record", "at", "what"), rows, none)


def _unapproved(found: dict[str, Any]) -> str:
    rows = _cells(found["exceptions"], "id", "at", "agent", "summary", "missing_approval")
    counts = f"<p>{found['needed']:,} actions needed an approval, {found['ran']:,} of them ran.</p>"
    return counts + table(("effect", "at", "agent", "what", "missing"), rows, "None ran without it.")


def _retention(kept: dict[str, Any]) -> str:
    words = f"The oldest record is of {safe(kept['oldest'])}. No record is ever deleted; audit_days is {kept['days']}."
    return f"<p>{words}</p>" + table(
        ("what was given up", "how many"), kept["given_up"], "Nothing was given up."
    )


def _counted(answers: dict[str, Any]) -> str:
    states = table(("state", "effects"), answers["states"].items(), "There is no effect.")
    lists = "<code>takeback audit log PATH --since TIME</code> lists them"
    return f"<p><code>records.jsonl</code> has every record; {lists}.</p>{states}"


def _approved(one: dict[str, Any]) -> str:
    told = [
        f"{said['by']} ({said['known_by']}) said {'yes' if said['approved'] else 'no'} at {said['at']}"
        + ("" if said["fits"] else ", to something else than what ran")
        for said in one["approvals"]
    ]
    return "; ".join(told) or ("none, and it was needed" if one["missing_approval"] else "not needed")


def _sample(answers: dict[str, Any]) -> str:
    chosen: list[dict[str, Any]] = answers["sample"]
    told = [
        one | {"approval": _approved(one), "rule": (one["rule"] or dict[str, Any]()).get("rule")}
        for one in chosen
    ]
    heads = ("effect", "at", "agent", "what", "state", "approval", "rule", "verified")
    rows = _cells(told, "id", "at", "agent", "summary", "state", "approval", "rule", "verified")
    return table(heads, rows, "There is no effect.")


def _proof(proof: dict[str, Any]) -> str:
    word = '<p class="good">The journal fits its hashes and its anchors.</p>'
    if proof["findings"]:
        listed = "".join(f"<li>{safe(one)}</li>" for one in proof["findings"])
        word = f'<p class="bad">The journal does not fit.</p><ul>{listed}</ul>'
    anchors = table(("anchor", "signed at", "records", "key"), proof["anchors"], "There is no anchor.")
    weak = "".join(f"<li>{safe(one)}</li>" for one in (*proof["weaknesses"], *proof["notes"]))
    return f"{word}<p>Level {proof['level']}: {safe(proof['words'])}.</p>{f'<ul>{weak}</ul>' if weak else ''}{anchors}"
