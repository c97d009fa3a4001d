"""What a policy answers: every way to match, the strictest rule in whatever order, what a project's file cannot do."""

import itertools
import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from takeback.errors import Misuse, Refused
from takeback.model.ruling import PolicyAnswer, Ruling
from takeback.policy.cases import checked, subject_given
from takeback.policy.commands import commands_of
from takeback.policy.decide import decide
from takeback.policy.parse import layer_from
from takeback.policy.rules import Layer, Level, Policy
from takeback.policy.starters import STARTERS
from takeback.policy.statements import verbs_and_tables
from takeback.runs.conditions import compiled
from takeback.runs.policy_files import layer_from_json, layer_to_json

ROOT, HOME = "/home/ann/app", "/home/ann"


def layer(text: str, level: Level = Level.PROJECT, **more: Any) -> Layer:
    told = {"file": f"{ROOT}/takeback.toml", "digest": "d", "root": ROOT, "home": HOME} | more
    if level is not Level.PROJECT:
        told["root"] = ""
    return layer_from(tomllib.loads(text), text, level=level, **told)


def answer(text: str, **subject: Any) -> Ruling:
    return decide(Policy((layer(text),)), subject_given(subject, ROOT), compiled)


def rule(match: str, then: str = "deny") -> str:
    return f'[[rule]]\nname = "r"\nmatch = {{{match}}}\nthen = "{then}"\n'


MATCHING: tuple[tuple[str, dict[str, Any]], ...] = (
    ('agent = "codex"', {"agent": "codex"}),
    ('agent = "c*"', {"agent": "codex"}),
    ('host = "ci-*"', {"host": "ci-7"}),
    ('kind = "delete"', {"kind": ["delete", "file", "file.delete"]}),
    ('kind = "file.*"', {"kind": ["delete", "file", "file.delete"]}),
    ('path = ".env"', {"path": ".env"}),
    ('path = ".env"', {"path": "deep/down/.env"}),
    ('path = "src/**/*.sql"', {"path": "src/a/b/c.sql"}),
    ('path = "src/**/*.sql"', {"path": "src/c.sql"}),
    ('path = "./conf"', {"path": "conf/nginx/a.conf"}),
    ('path = "/etc"', {"path": "/etc/ssl/key"}),
    ('path = "/etc/**"', {"path": "/etc"}),
    ('path = "~/.ssh"', {"path": "/home/ann/.ssh/id"}),
    ('path = "**"', {"path": "anything"}),
    ('path = "[ab].txt"', {"path": "b.txt"}),
    ('path = "src/secret/key"', {"whole": "src"}),
    ('path = ["x", "y"]', {"path": ["n", "y"]}),
    ('path = "postgresql://prod*/**"', {"path": "postgresql://prod1/app"}),
    ('command = "git push * --force"', {"command": "git push --force"}),
    ('command = "git push * --force"', {"command": "git push origin main --force"}),
    ('command = "rm -rf"', {"command": ["/bin/rm", "-rf", "x"]}),
    ('command = "rm"', {"command": ["sh", "-c", "cd /x && sudo -u bob rm -r y"]}),
    ('command = "curl"', {"command": 'echo "$(curl http://x)"'}),
    ('command = "dd * of=/dev/*"', {"command": "dd if=x of=/dev/sda"}),
    ('verb = "DROP"', {"statement": "drop table t"}),
    ('table = "users"', {"statement": "update public.users set a = 1"}),
    ('table = "public.users"', {"statement": "update public.users set a = 1"}),
    ('tool = "mcp__mail__*"', {"tool": "mcp__mail__send"}),
    ('action = "refund"', {"action": ["app.pay:refund", "refund"]}),
    ('risk = ["medium", "high"]', {"risk": "high"}),
    ('reversibility = "inexact"', {"reversibility": "inexact"}),
    ("files_over = 3", {"files": 4}),
    ("rows_over = 3", {"rows": 4}),
    ('bytes_over = "1 KB"', {"bytes": 1025}),
    ("files_up_to = 3", {"files": 3}),
    ('argument = {amount = ">1000"}', {"arguments": {"amount": 1000.5}}),
    ('argument = {amount = ">=1000", to = "bob"}', {"arguments": {"amount": "1000", "to": "bob"}}),
    ('hours = "22:00-06:00"', {"at": "wed 23:30"}),
    ('hours = "fri 22:00-06:00"', {"at": "sat 05:59"}),
    ('hours = ["mon-fri 09:00-17:00"]', {"at": "fri 16:59"}),
    ('hours = "sat-mon 00:00-24:00"', {"at": "sun 12:00"}),
)
NOT_MATCHING: tuple[tuple[str, dict[str, Any]], ...] = (
    ('agent = "codex"', {"agent": "codex2"}),
    ('kind = "delete"', {"kind": "write"}),
    ('path = ".env"', {"path": ".env.example"}),
    ('path = "conf"', {"path": "conf.d/x"}),
    ('path = "src/*.py"', {"path": "src/a/b.py"}),
    ('path = "a.b"', {"path": "aXb"}),
    ('path = "src/secret"', {"whole": "src2"}),
    ('command = "git push * --force"', {"command": "git push --force-with-lease"}),
    ('command = "rm"', {"command": "rmdir x"}),
    ('command = "rm"', {"command": 'echo "rm -rf x"'}),
    ('verb = "delete"', {"statement": "select 'delete from t'"}),
    ('table = "users"', {"statement": "delete from users_old"}),
    ("files_over = 3", {"files": 3}),
    ("files_over = 3", {}),
    ("files_up_to = 3", {}),
    ('argument = {amount = ">1000"}', {"arguments": {"amount": 1000}}),
    ('argument = {amount = ">1000"}', {"arguments": {}}),
    ('argument = {sure = "1"}', {"arguments": {"sure": True}}),
    ('hours = "fri 22:00-06:00"', {"at": "fri 05:59"}),
    ('hours = ["mon-fri 09:00-17:00"]', {"at": "fri 17:00"}),
    ('agent = "a", kind = "write"', {"agent": "a", "kind": "delete"}),
)


@pytest.mark.parametrize(("match", "subject"), MATCHING, ids=[one for one, _ in MATCHING])
def test_a_rule_matches(match: str, subject: dict[str, Any]) -> None:
    assert answer(rule(match), **subject).rule == "r"


@pytest.mark.parametrize(("match", "subject"), NOT_MATCHING, ids=[one for one, _ in NOT_MATCHING])
def test_a_rule_does_not_match(match: str, subject: dict[str, Any]) -> None:
    assert answer(rule(match), **subject) == Ruling()


@pytest.mark.parametrize("then", [one.value for one in PolicyAnswer])
def test_a_rule_answers_with_its_name_its_line_and_why(then: str) -> None:
    text = f'\n[[rule]]\nname = "a rule"\nthen = "{then}"\nwhy = "Because."\n'

    assert answer(text) == Ruling(PolicyAnswer(then), "a rule", f"{ROOT}/takeback.toml:2", "Because.")


_ANSWERS = st.sampled_from([one.value for one in PolicyAnswer])
_MATCHES = st.sampled_from(
    ['path = "a"', 'agent = "x"', "", 'kind = "write"', "files_over = 1", 'path = "b"']
)
_LISTED = st.lists(st.tuples(_MATCHES, _ANSWERS, st.integers(1, 3), st.booleans()), min_size=1, max_size=6)


def _written(rules: "tuple[tuple[str, tuple[str, str, int, bool]], ...]") -> str:
    text = ""
    for name, (match, then, people, challenge) in rules:
        asks = (
            f"asks = {{people = {people}, challenge = {str(challenge).lower()}}}\n" if then == "ask" else ""
        )
        text += f'[[rule]]\nname = "{name}"\nmatch = {{{match}}}\nthen = "{then}"\n{asks}'
    return text


@settings(max_examples=60, deadline=None)
@given(_LISTED, st.randoms(use_true_random=False))
def test_the_order_of_rules_and_of_layers_never_matters(
    rules: "list[tuple[str, str, int, bool]]", random: Any
) -> None:
    named = [(f"r{number}", one) for number, one in enumerate(rules)]
    shuffled = random.sample(named, len(named))
    subject = subject_given({"path": "a", "agent": "x", "kind": "write", "files": 2}, ROOT)

    def decided(order: Any) -> tuple[Any, ...]:
        half = len(order) // 2
        layers = [layer(_written(order[:half]), Level.USER), layer(_written(order[half:]), Level.USER)]
        found = decide(Policy(tuple(layers)), subject)
        return found.answer, found.asks.people, found.asks.challenge

    together = decide(Policy((layer(_written(tuple(named)), Level.USER),)), subject)
    assert together[:2] == decide(Policy((layer(_written(tuple(shuffled)), Level.USER),)), subject)[:2]
    assert decided(tuple(shuffled))[0] == together.answer
    for parts in itertools.islice(
        itertools.permutations([layer(_written((one,)), Level.USER) for one in named]), 12
    ):
        assert decide(Policy(parts), subject).answer == together.answer


@settings(max_examples=60, deadline=None)
@given(_LISTED, _LISTED, st.booleans(), st.booleans())
def test_a_file_of_a_project_only_tightens(
    above: "list[tuple[str, str, int, bool]]",
    mine: "list[tuple[str, str, int, bool]]",
    first: bool,
    gated: bool,
) -> None:
    """Whatever it says, and in whatever order it wants to be read."""
    given_ = {"path": "a", "agent": "x", "kind": "write", "files": 2}
    subject = subject_given(given_ | ({"reversibility": "irreversible"} if gated else {}), ROOT)
    order = 'order = "first"\n' if first else ""
    user = layer(_written(tuple((f"u{n}", one) for n, one in enumerate(above))), Level.USER)
    project = layer(order + _written(tuple((f"p{n}", one) for n, one in enumerate(mine))))._replace(
        trusted=False
    )
    ranks = list(PolicyAnswer)

    alone, both = decide(Policy((user,)), subject), decide(Policy((user, project)), subject)

    assert ranks.index(both.answer) >= ranks.index(alone.answer)


def test_where_the_file_says_so_the_first_rule_decides() -> None:
    text = f"order = 'first'\n{rule('', 'allow')}".replace('"r"', '"mild"') + rule("")

    assert answer(text).rule == "mild"


def test_what_cannot_be_undone_is_asked_for_with_a_challenge_unless_a_rule_names_it() -> None:
    broad = rule("", "allow")
    exact = rule('reversibility = "irreversible", agent = "payer"', "allow")
    facts = {"reversibility": "irreversible", "agent": "payer"}

    assert answer(broad, **facts).asks.challenge
    assert answer(exact, **facts).answer is PolicyAnswer.ALLOW
    assert answer(exact, **facts | {"agent": "other"}).answer is PolicyAnswer.ASK
    untrusted = Policy((layer(exact)._replace(trusted=False),))
    assert decide(untrusted, subject_given(facts, ROOT)).answer is PolicyAnswer.ASK


def test_labels_of_a_project_do_not_reach_rules_above_it() -> None:
    user = layer('[labels]\nprod = "/srv"\n' + rule('label = "scratch"', "hold") + rule('label = "prod"').replace(
        '"r"', '"prod"'), Level.USER)  # fmt: skip
    project = layer('[labels]\nscratch = "**"\n' + rule('label = "scratch"', "ask"))

    def decided(path: str) -> Ruling:
        return decide(Policy((user, project)), subject_given({"path": path}, ROOT))

    assert decided("x").answer is PolicyAnswer.ASK  # by its own rule; the user's would hold
    assert decided("/srv/x").answer is PolicyAnswer.DENY


def test_a_prefix_is_changed_by_its_owners_only() -> None:
    text = '[owners]\n"web/" = ["ann", "bob"]\n'

    assert answer(text, path="web/index.html", agent="ann") == Ruling()
    refused = answer(text, path="web/index.html", agent="eve")
    assert (refused.answer, refused.why) == (PolicyAnswer.DENY, "web/ belongs to ann, bob.")
    assert answer(text, path="api/x", agent="eve") == Ruling()


def test_the_default_counts_where_no_rule_matches() -> None:
    text = '[settings]\ndefault = "ask"\n' + rule("files_up_to = 3", "allow")

    assert answer(text, files=3).answer is PolicyAnswer.ALLOW
    assert answer(text, files=4).answer is PolicyAnswer.ASK


def test_of_two_rules_that_ask_both_are_satisfied() -> None:
    text = _written((("a", ("", "ask", 2, False)), ("b", ("", "ask", 1, True))))

    assert answer(text).asks[::3] == (2, True)


def test_the_stricter_place_counts() -> None:
    text = '[[rule]]\nname = "a"\nplace = "in place"\n[[rule]]\nname = "b"\nplace = "sandbox"\n'

    assert answer(text).place == "sandbox"


def test_a_condition_decides_and_one_that_fails_counts_against_the_change() -> None:
    text = rule("") + "when = \"files > 10 && agent != 'deployer'\"\n"

    assert answer(text, files=11).rule == "r"
    assert answer(text, files=11, agent="deployer") == Ruling()
    assert answer(rule("") + 'when = "nonsense > 1"\n').answer is PolicyAnswer.DENY
    assert answer(rule("", "allow") + 'when = "nonsense > 1"\n') == Ruling()
    with pytest.raises(Refused, match="no CEL expression"):
        answer(rule("") + 'when = "files >"\n')


def test_without_the_extra_a_condition_is_refused() -> None:
    with pytest.raises(Refused) as refusal:
        decide(Policy((layer(rule("") + 'when = "true"\n'),)), subject_given({}, ROOT))

    assert "takeback[cel]" in refusal.value.hint


BROKEN = (
    ('[[rule]]\nname = "a"\nthen = "forbid"\n', (3, 1), "then cannot be 'forbid'"),
    ('[[rule]]\nthen = "deny"\n', (1, 1), "a rule needs a name"),
    ('[[rule]]\nname = "a"\n', (1, 1), "a rule needs an answer"),
    ('[[rule]]\nname = "a"\nthen = "deny"\n\n[rule.match]\n  pth = "x"\n', (6, 3), "'pth' does not exist"),
    ('[[rule]]\nname = "a"\nthen = "deny"\nmatch = {hours = "9-17"}\n', (4, 1), "hours cannot be '9-17'"),
    ('[[rule]]\nname = "a"\nthen = "deny"\nmatch = {bytes_over = "10 XB"}\n', (4, 1), "bytes_over cannot be"),
    ('[[rule]]\nname = "a"\nthen = "deny"\nmatch = {risk = "huge"}\n', (4, 1), "risk cannot be 'huge'"),
    ('[[rule]]\nname = "a"\nthen = "deny"\nmatch = {path = []}\n', (4, 1), "path is an empty list"),
    ('[[rule]]\nname = "a"\nthen = "deny"\nmatch = {argument = {a = ">x"}}\n', (4, 1), "no number"),
    ('[[rule]]\nname = "a"\nthen = "hold"\nasks = {people = 2}\n', (4, 1), "asks belongs to a rule that asks"),
    ('[[rule]]\nname = "a"\nthen = "ask"\nasks = {people = 0}\n', (4, 1), "people cannot be 0"),
    ('[[rule]]\nname = "a"\nthen = "ask"\nasks = {people = 2, of = ["x"]}\n', (4, 1), "only 1 may answer"),
    ('[[rule]]\nname = "a"\nthen = "ask"\nasks = {within = "soon"}\n', (4, 1), "within cannot be 'soon'"),
    ('[[rule]]\nname = "a"\nthen = "deny"\n[[rule]]\nname = "a"\nthen = "ask"\n', (5, 1), "two rules named 'a'"),
    ('# one\n[rules]\nx = 1\n', (2, 1), "'rules' does not exist"),
    ('order = "last"\n', (1, 1), "order cannot be 'last'"),
    ('[[budget]]\nname = "b"\nmost = 0\nper = "1m"\n', (3, 1), "most cannot be 0"),
    ('[[case]]\ngiven = {commnd = "x"}\nthen = "deny"\n', (2, 1), "'commnd' does not exist"),
    ('[[case]]\ngiven = {}\nthen = "deny"\nrule = "b"\n', (4, 1), "there is no rule 'b'"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "place", "words"), BROKEN, ids=[words for _, _, words in BROKEN])
def test_a_mistake_is_named_with_its_line_and_column(text: str, place: tuple[int, int], words: str) -> None:
    with pytest.raises(Misuse) as error:
        layer(text)

    assert f"takeback.toml, line {place[0]}, column {place[1]}: " in str(error.value)
    assert words in str(error.value)


def test_a_wrong_name_gets_the_right_one_as_a_hint() -> None:
    with pytest.raises(Misuse) as error:
        layer('[[rule]]\nname = "a"\nthen = "deny"\nmatch = {comand = "x"}\n')

    assert "command" in error.value.hint


@pytest.mark.parametrize("name", STARTERS)
def test_a_policy_to_begin_with_passes_its_own_cases(name: str) -> None:
    found = checked(layer(STARTERS[name]), compiled)

    assert found
    assert [one.case.name for one in found if not one.is_right] == []


@pytest.mark.parametrize("name", STARTERS)
def test_the_compiled_copy_is_the_same_layer(name: str) -> None:
    made = layer(STARTERS[name])

    again = layer_from_json(json.loads(json.dumps(layer_to_json(made))))

    assert again
    assert json.dumps(again) == json.dumps(made)
    assert [one.is_right for one in checked(again, compiled)] == [True] * len(made.cases)


def test_a_copy_of_another_version_is_not_used() -> None:
    assert layer_from_json(layer_to_json(layer("")) | {"version": 0}) is None


STATEMENTS = (
    ("DELETE FROM public.users WHERE x IN (SELECT id FROM b)", "delete select", "public.users b users"),
    ("with a as (delete from t returning *) select * from a", "delete", "t a"),
    ("DROP TABLE IF EXISTS a, s.b", "drop", "a s.b b"),
    ("insert into t (a, b) values (1, 2); truncate z", "insert truncate", "t z"),
    ("/* drop table x */ update \"T\" set a = 'delete from q' -- drop", "update", "t"),
    ("alter table only x add column y int", "alter", "x"),
    ("grant all on t to bob", "grant", ""),
    ("explain analyze delete from t", "delete", "t"),
)


@pytest.mark.parametrize(("statement", "verbs", "tables"), STATEMENTS)
def test_a_statement_names_its_verbs_and_tables(statement: str, verbs: str, tables: str) -> None:
    found = verbs_and_tables(statement)

    assert set(verbs.split()) <= set(found[0])
    assert set(found[1]) == set(tables.split())


def test_a_script_with_an_open_quote_is_read_word_by_word() -> None:
    assert ("rm", "-rf", "'x") in commands_of(["sh", "-c", "rm -rf 'x"])
