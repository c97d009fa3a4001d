"""Rules, each broken on purpose by an exact replacement of text, and the tests that must notice."""

from typing import NamedTuple


class Mutant(NamedTuple):
    rule: str
    file: str  # below src/takeback
    replace: tuple[tuple[str, str], ...]  # each must be found, or this job is out of date
    suite: tuple[str, ...]  # pytest arguments; at least one test there must fail
    also: tuple[tuple[str, str, str], ...] = ()  # in other files: which, what, by what


BOUNDARIES = "tests/crash/test_every_boundary.py"
DOORS = "tests/conformance/test_doors_to_databases.py"
REFUSING = "tests/conformance/test_doors_that_refuse.py"
KILLED = "tests/calls/test_killed.py"
SLOW = ("-m", "not long")
STARTER = "tests/agents/test_starter.py"

MUTANTS = (
    Mutant(
        "an intent is durable before the world is touched",
        "engine/write.py",
        (
            (
                "    (record,) = parts.journal.append(lease, [as_draft(Kind.INTENT, effect)])\n"
                "    return effect._replace("
                "state=State.INTENDED, seq=effect.seq or record.seq, told=record.seq, at=record.at)\n",
                "    return effect._replace(state=State.INTENDED)\n",
            ),
        ),
        (BOUNDARIES, "-k", "killed_at_any_boundary_is_whole"),
        (
            (
                "engine/settle.py",
                "            receipt = adapter.apply(effect)\n",
                "            receipt = adapter.apply(effect)\n"
                "            parts.journal.append(lease, [as_draft(Kind.INTENT, effect)])\n",
            ),
            ("engine/settle.py", "import Parts, stage_of\n", "import Parts, as_draft, stage_of\n"),
        ),
    ),
    Mutant(
        "recovery asks the world before it settles",
        "engine/recover.py",
        (
            (
                "sighting = adapter.verify(effect) if effect.remedy else None",
                "sighting = None",
            ),
        ),
        (BOUNDARIES, "-k", "killed_at_any_boundary_is_whole"),
    ),
    Mutant(
        "scratch is gone when an effect is settled",
        "engine/settle.py",
        (
            ("    adapter.tidy(effect)\n    body", "    body"),
            ("    adapter.tidy(effect)\n    if effect.dropped", "    if effect.dropped"),
        ),
        (BOUNDARIES, "-k", "killed_at_any_boundary_is_whole or killed_at_any_boundary_is_carried"),
    ),
    Mutant(
        "a key is done once",
        "engine/write.py",
        (
            ("recorded(parts, change, terms.key, door) if asks else None", "None"),
            ("isinstance(error, KeyReused) and (", "False and ("),
        ),
        ("tests/behaviour/test_runs.py", "-k", "key"),
    ),
    Mutant(
        "an undo that may not be called twice is recorded first",
        "engine/settle.py",
        (("    effect = _said_first(parts, lease, adapter, effect, why)\n", ""),),
        ("tests/calls/test_undoing.py", "-k", "recovered or made_up_for"),
    ),
    Mutant(
        "what is displaced must be what was captured",
        "adapters/file/remove.py",
        (
            (
                '    """Whether what was moved aside to this place is exactly what was captured."""\n',
                "    return True\n",
            ),
        ),
        ("tests/unit/test_file_races.py",),
    ),
    Mutant(
        "undo compares before it swaps",
        "adapters/file/undo.py",
        (("    if same(now, target.after):\n", "    if True:\n"),),
        ("tests/behaviour/test_undo.py",),
    ),
    Mutant(
        "done follows a look at the world",
        "engine/settle.py",
        (("        if sighting.standing is not Standing.AFTER:\n", "        if False:\n"),),
        ("tests/behaviour/test_engine.py",),
    ),
    Mutant(
        "a blob is durable before a record names it",
        "storage/sqlite/database.py",
        (("                    flush(connection)\n", "                    pass\n"),),
        (BOUNDARIES, "-k", "undo_killed_at_any_boundary"),
    ),
    Mutant(
        "only the newest lease may append",
        "storage/sqlite/append.py",
        (("    if lease and stand.generation != lease.generation:\n", "    if False:\n"),),
        ("tests/conformance/test_journal.py",),
    ),
    Mutant(
        "no door leads into takeback's own store",
        "engine/guards.py",
        (("        refuse_own(parts, *assessment.resources)\n", "        pass\n"),),
        ("tests/behaviour/test_every_guard_at_every_door.py", "-k", "store"),
    ),
    Mutant(
        "no door is passed without its precondition",
        "engine/guards.py",
        (("    if expects is None:\n", "    if True:\n"),),
        ("tests/behaviour/test_every_guard_at_every_door.py", "-k", "expects"),
    ),
    Mutant(
        "one effect in flight per resource",
        "storage/sqlite/append.py",
        (("        refuse_overlap(connection, record)\n", "        pass\n"),),
        ("tests/conformance/test_journal.py",),
    ),
    Mutant(
        "one effect in flight per resource, also of those that are not listed yet",
        "storage/sqlite/projection.py",
        (("        if self._in_flight or self._flying:\n", "        if False:\n"),),
        ("tests/conformance/test_journal.py",),
    ),
    Mutant(
        "only the newest lease may append what is listed later",
        "storage/sqlite/projection.py",
        (('AND pid <> 0) = ?9"\n', 'AND pid <> 0) <> -?9"\n'),),
        ("tests/conformance/test_journal.py",),
    ),
    Mutant(
        "what others have appended is listed before anything is added",
        "storage/sqlite/projection.py",
        (
            (
                "        return self._seq == seq and self._listed == listed\n",
                "        return True\n",
            ),
        ),
        ("tests/conformance/test_journal.py",),
    ),
    Mutant(
        "sweep keeps what a listed effect needs",
        "retention/space.py",
        (("            yield from effect.remedy.blobs\n", "            pass\n"),),
        ("tests/behaviour/test_retention.py", "-k", "sweep"),
    ),
    Mutant(
        "later effects block",
        "engine/plan.py",
        (
            (
                "            if not cascade:\n                blockers[dependent.id] = dependent\n",
                "            if not cascade:\n",
            ),
        ),
        ("tests/behaviour/test_undo.py", "-k", "block"),
    ),
    Mutant(
        "recovery finishes the paths that were asked for, not the whole effect",
        "engine/recover.py",
        (
            (
                "    only = frozenset(opened.body[ONLY]) if ONLY in opened.body else None\n",
                "    only = None\n",
            ),
        ),
        ("tests/crash/test_some_paths.py", "-k", "written and some and not redo"),
    ),
    Mutant(
        "an undo took the paths that it recorded, and no others",
        "engine/portion.py",
        (("    if terms.only is not None:\n", "    if False:\n"),),
        ("tests/behaviour/test_some_paths.py", "-k", "other_order or out_of_turn"),
    ),
    Mutant(
        "paths that go together are taken together",
        "engine/portion.py",
        (("    for bond, names in groups:\n", "    for bond, names in groups[:0]:\n"),),
        ("tests/behaviour/test_some_paths.py", "-k", "together"),
    ),
    Mutant(
        "later effects depend on what still stands",
        "engine/dependents.py",
        (("    stands = standing(parts, later)\n", "    stands = later\n"),),
        ("tests/behaviour/test_some_paths.py", "-k", "blocks_no_longer"),
    ),
    Mutant(
        "an undo is done whole or brought back",
        "engine/recover.py",
        (
            ("    if any(record.body.get(BRINGING_BACK) for record in more):\n", "    if False:\n"),
            ("    except (Refused, Failed, Corrupt) as error:\n", "    except ZeroDivisionError as error:\n"),
        ),
        ("tests/crash/test_runs_and_upkeep.py", "-k", "whoever"),
    ),
    Mutant(
        "a run does not end while an effect of it is in flight",
        "model/lifecycle.py",
        (("    if record.kind is Kind.CLOSE and in_flight and ", "    if False and "),),
        ("tests/conformance/test_journal.py", "-k", "in_flight"),
    ),
    Mutant(
        "an undo is finished the way it was asked for",
        "engine/recover.py",
        (('OnConflict(opened.body.get("on_conflict", OnConflict.SKIP))', "OnConflict.SKIP"),),
        ("tests/crash/test_runs_and_upkeep.py", "-k", "foreign_edit"),
    ),
    Mutant(
        "a run that cannot be taken back yet is not ended",
        "engine/close_run.py",
        (
            (
                "    ends = not result.postponed and not _in_the_way(left)\n",
                "    ends = True\n",
            ),
        ),
        ("tests/crash/test_failing_calls.py", "-k", "run"),
    ),
    Mutant(
        "a store whose maker was killed is made whole",
        "storage/sqlite/store.py",
        (("    if not there or _half_made(path):\n", "    if not there:\n"),),
        ("tests/crash/test_runs_and_upkeep.py", "-k", "maker"),
    ),
    Mutant(
        "a file that stays as it was stands where the others stand",
        "adapters/file/verify.py",
        (("    return together(_with_the_others(effect.targets, seen))\n", "    return together(seen)\n"),),
        (BOUNDARIES, "-k", "boundary_is_whole and was"),
    ),
    Mutant(
        "a change asked for again is another change",
        "runs/change.py",
        (
            (
                "        core.position += 1\n        _count(core)\n",
                "        _count(core)\n",
            ),
        ),
        ("tests/properties/test_keys.py", "tests/behaviour/test_runs.py"),
    ),
    Mutant(
        "a run waits for its calls before it ends",
        "runs/lease.py",
        (("        while self.others:\n", "        while False:\n"),),
        ("tests/calls/test_in_parallel.py", "-k", "waits_for_its_calls"),
    ),
    Mutant(
        "opening a store settles nothing",
        "api/__init__.py",
        (("    opened_of(tb).settles = recover", "    upkeep.settle_first(opened_of(tb), calls=True)"),),
        ("tests/calls/test_looking_in_python.py", "-k", "never_act"),
    ),
    Mutant(
        "undo of a redo takes back what the redo brought",
        "model/lifecycle.py",
        (
            (
                "    return (target, original, *_undone(original, find, where))\n",
                "    return (target, original)\n",
            ),
        ),
        ("tests/conformance/test_journal.py", "-k", "undo_of_a_redo"),
    ),
    Mutant(
        "an undo takes back what was planned, or nothing",
        "engine/write.py",
        (("        _refuse_other_targets(effect, assessment, remedy)\n", ""),),
        ("tests/crash/test_several_processes.py", "-k", "between_the_look"),
    ),
    Mutant(
        "a tree of which only a part is made is neither before nor after",
        "adapters/tree/verify.py",
        (("    if len(deciding) > 1:\n", "    if False:\n"),),
        ("tests/trees/test_killed.py", *SLOW, "-k", "any_boundary and merge"),
    ),
    Mutant(
        "what is in a directory that was made anew hides what was in the old one",
        "sandbox/differences.py",
        (("            if is_opaque(path, ground.userxattr):\n                break\n", ""),),
        ("tests/trees/test_random_operations.py", *SLOW),
    ),
    Mutant(
        "another mode is a change of a watched tree",
        "adapters/watch/compare.py",
        (("    return not same(one, other) or ", "    return "),),
        ("tests/trees/test_random_operations.py",),
    ),
    Mutant(
        "a link in a tree is never followed",
        "adapters/file/kernel.py",
        (("resolve = RESOLVE_NO_SYMLINKS | ", "resolve = "),),
        ("tests/trees/test_racer.py", "tests/trees/unit/test_tree_undo.py", "-k", "link"),
    ),
    Mutant(
        "work for which there is no room is held",
        "runs/commands/execute.py",
        (("raise _held_instead(core, found.change, options, trouble) from trouble", "raise"),),
        ("tests/trees/test_full_disk.py",),
    ),
    Mutant(
        "a change for which there is no room is withdrawn",
        "adapters/tree/apply.py",
        (("            self._withdraw(pending, swapped, adjusted, trouble)\n", ""),),
        ("tests/trees/test_full_disk.py", "tests/trees/unit/test_tree_faults.py"),
    ),
    Mutant(
        "the mark in PostgreSQL tells whether it happened",
        "adapters/postgres/transactions.py",
        (
            (
                "    return None if number is None or undone_by else told or {}\n",
                "    return told or {}\n",
            ),
        ),
        ("tests/sql/test_killed.py", "-k", "one_of_each and postgres"),
    ),
    Mutant(
        "the mark in Redis tells whether it happened",
        "adapters/redis/adapter.py",
        (("            there = op is not None and not op.undone_by\n", "            there = True\n"),),
        ("tests/sql/test_redis_restart.py", "-k", "lost_everything"),
    ),
    Mutant(
        "an effect that made no difference passes its past on",
        "adapters/postgres/dependents.py",
        (('        f"and {_differs(net, log)} "\n', ""),),
        ("tests/sql/test_histories.py", "-k", "wrong_once and postgres"),
    ),
    Mutant(
        "the intent of a call is durable before it is made",
        "engine/write.py",
        (
            (
                "    (record,) = parts.journal.append(lease, [as_draft(Kind.INTENT, effect)])\n"
                "    return effect._replace("
                "state=State.INTENDED, seq=effect.seq or record.seq, told=record.seq, at=record.at)\n",
                "    return effect._replace(state=State.INTENDED)\n",
            ),
        ),
        (KILLED, "-k", "whose_process_is_killed_is_made_once and pay"),
        (
            (
                "engine/settle.py",
                "            receipt = adapter.apply(effect)\n",
                "            receipt = adapter.apply(effect)\n"
                "            parts.journal.append(lease, [as_draft(Kind.INTENT, effect)])\n",
            ),
            ("engine/settle.py", "import Parts, stage_of\n", "import Parts, as_draft, stage_of\n"),
        ),
    ),
    Mutant(
        "a call is done when it was made",
        "engine/settle.py",
        (
            (
                "        receipt = adapter.apply(effect)\n",
                "        parts.journal.append(lease, [Draft(Kind.DONE, effect.run, effect.id, {})])\n"
                "        receipt = adapter.apply(effect)\n",
            ),
            (
                "        return finish(parts, lease, adapter, effect, receipt.data)\n",
                "        return effect\n",
            ),
        ),
        (KILLED, "-k", "whose_process_is_killed_is_made_once and pay"),
    ),
    Mutant(
        "the bank is asked before a payment is made again",
        "engine/recover.py",
        (("sighting = adapter.verify(effect) if effect.remedy else None", "sighting = None"),),
        (KILLED, "-k", "whose_process_is_killed_is_made_once and pay"),
    ),
    Mutant(
        "a compensation is asked for before it is made again",
        "adapters/call/adapter.py",
        (("        if not self._was_made_up_for(effect):\n", "        if True:\n"),),
        (KILLED, "-k", "whose_process_is_killed_is_made_once and wrong"),
    ),
    Mutant(
        "what is not there may only be late",
        "adapters/call/ask.py",
        (("seen.there is expected or waited >= left:", "seen.there is expected or True:"),),
        ("tests/calls/test_network.py", "-k", "late"),
    ),
    Mutant(
        "what is late is waited for by a clock that nobody sets",
        "adapters/call/ask.py",
        (("    if caller is None or not caller.ticks or", "    if True or"),),
        ("tests/calls/test_clock.py",),
    ),
    Mutant(
        "who is stopped in the middle of a call may still make it",
        "adapters/call/ask.py",
        (("        if not self.may_be_under_way(effect):\n            return\n", "        return\n"),),
        ("tests/calls/test_paused.py",),
    ),
    Mutant(
        "the intent of a statement is durable before its commit",
        "engine/transaction.py",
        (
            (
                "        return announced(parts, lease, made, terms)\n",
                "        return made._replace(state=State.INTENDED)\n",
            ),
            (
                "    return finish(parts, lease, adapter, effect, receipt)\n",
                "    from takeback.engine.parts import as_draft\n"
                "    from takeback.model.record import Kind\n\n"
                "    parts.journal.append(lease, [as_draft(Kind.INTENT, effect)])\n"
                "    return finish(parts, lease, adapter, effect, receipt)\n",
            ),
        ),
        (DOORS, "-k", "TestSqlite and before_its_intent and statement"),
    ),
    Mutant(
        "a key is done once, for single statements and transactions too",
        "runs/sql.py",
        (("Terms(key or next_key(core, change),", "Terms(next_key(core, change),"),),
        (DOORS, "-k", "TestSqlite and twice and statement"),
    ),
    Mutant(
        "large objects are not written, by a single statement either",
        "adapters/postgres/session.py",
        (
            ('self._begin("begin read only")', 'self._begin("begin")'),
            ('[Question(_NOTHING_WRITTEN), Question("commit")]', '[Question("commit")]'),
        ),
        (REFUSING, "-k", "TestPostgres and refused_and_changes_nothing"),
    ),
    Mutant(
        "a command is run once under its key",
        "runs/commands/execute.py",
        (
            (
                "    if earlier := _made_before(core.parts, request, key):\n",
                "    if earlier := None:\n",
            ),
        ),
        ("tests/conformance/test_doors_to_files.py", "-k", "TestPrograms and twice"),
    ),
    Mutant(
        "a command that the daemon carries out has the umask of its caller",
        "frontends/agents/starter.py",
        (
            ('    os.umask(int(status[b"Umask"], 8))\n', ""),
            ('b"Umask", b"TracerPid"', 'b"TracerPid"'),
        ),
        (STARTER, "-k", "finds_the_same and umask"),
    ),
    Mutant(
        "a command that the daemon carries out has the limits of its caller",
        "frontends/agents/starter.py",
        (
            ("            resource.setrlimit(number, wanted)\n", "            pass\n"),
            ('_FILES = ("limits", ', "_FILES = ("),
        ),
        (STARTER, "-k", "finds_the_same and nofile"),
    ),
    Mutant(
        "what the daemon cannot take on is left to the caller",
        "frontends/agents/starter.py",
        (
            (
                '    if standing(pid, wish.personality) != standing("self", _read("self", "personality")):\n',
                "    if False:\n",
            ),
        ),
        (STARTER, "-k", "finds_the_same and privileges"),
    ),
    Mutant(
        "a caller that is gone takes its command with it",
        "frontends/agents/starter.py",
        (("                    os.kill(child.pid, signal.SIGKILL)\n", ""),),
        (STARTER, "-k", "as_if_it_had_come and SIGKILL"),
    ),
    Mutant(
        "a signal to the caller is one to its command",
        "frontends/agents/client.py",
        (("            _signal.pidfd_send_signal(", "            (lambda *_: None)("),),
        (STARTER, "-k", "as_if_it_had_come and SIGTERM"),
    ),
    Mutant(
        "what was begun is not begun a second time",
        "frontends/agents/client.py",
        (("    return None if said == _SELF else LOST\n", "    return None\n"),),
        (STARTER, "-k", "in_doubt"),
    ),
)
