-- Appending, whole: what model/lifecycle.py says of a record, said once more where it costs one trip. The suites of
-- takeback.testing and `takeback verify` hold both to the same.
--
-- These functions are made anew after the last step that a store lacks. So whoever changes one adds a step to schema/,
-- if only to count; and a step must not need the functions as they were.

-- moved: the state after an event, as TRANSITIONS in model/effect.py has it; an event that does not fit is an alarm.
CREATE OR REPLACE FUNCTION takeback_store.moved(state text, event text, seq bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  after text := CASE event
    WHEN 'propose' THEN CASE WHEN state IS NULL THEN 'proposed' END
    WHEN 'intent' THEN CASE WHEN state IS NULL OR state IN ('proposed', 'dropped') THEN 'intended' END
    WHEN 'decide' THEN CASE WHEN state = 'proposed' THEN 'proposed' END
    WHEN 'done' THEN CASE WHEN state IN ('intended', 'stuck') THEN 'done' END
    WHEN 'abort' THEN CASE WHEN state IN ('proposed', 'intended', 'stuck') THEN 'aborted' END
    WHEN 'drop' THEN CASE WHEN state IN ('proposed', 'intended') THEN 'dropped' END
    WHEN 'stick' THEN CASE WHEN state = 'intended' THEN 'stuck' END
    WHEN 'taken back' THEN CASE WHEN state = 'done' THEN 'undone' END
    WHEN 'brought back' THEN CASE WHEN state = 'undone' THEN 'done' END
    WHEN 'erase' THEN CASE WHEN state = 'dropped' THEN 'aborted' END
    ELSE CASE WHEN event IN ('accept', 'keep', 'pin', 'unpin', 'forget') AND state IN ('done', 'undone') THEN state END
  END;
BEGIN
  IF after IS NULL THEN
    RAISE EXCEPTION 'Record %: ''%'' cannot follow state ''%''.', seq, event, coalesce(state, 'none') USING ERRCODE = 'TB002';
  END IF;
  RETURN after;
END $$;

CREATE OR REPLACE FUNCTION takeback_store.counted(what text, change bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE takeback_store.tally SET n = n + change WHERE name = what;
  IF NOT FOUND THEN
    INSERT INTO takeback_store.tally (name, n) VALUES (what, change);
  END IF;
END $$;

-- taken_back: what an undo takes back is undone; if that was itself an undo, what it had undone is back, and so on.
CREATE OR REPLACE FUNCTION takeback_store.taken_back(undo text, target text, seq bigint, only_look boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  taken takeback_store.effects;
  brought takeback_store.effects;
BEGIN
  LOOP
    SELECT * INTO taken FROM takeback_store.effects WHERE id = target;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'Record %: it undoes ''%'', which is not in the journal.', seq, target USING ERRCODE = 'TB002';
    END IF;
    PERFORM takeback_store.moved(taken.state, 'taken back', seq);
    IF NOT only_look THEN
      UPDATE takeback_store.effects SET state = 'undone', undone_by = undo WHERE id = target;
      PERFORM takeback_store.counted('undone', 1);
    END IF;
    EXIT WHEN taken.undoes = '' OR taken.partial = 1;
    SELECT * INTO brought FROM takeback_store.effects WHERE id = taken.undoes;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'Record %: it brings back ''%'', which is not in the journal.', seq, taken.undoes USING ERRCODE = 'TB002';
    END IF;
    PERFORM takeback_store.moved(brought.state, 'brought back', seq);
    IF NOT only_look THEN
      UPDATE takeback_store.effects SET state = 'done', undone_by = '' WHERE id = brought.id;
      PERFORM takeback_store.counted('undone', -1);
    END IF;
    EXIT WHEN brought.undoes = '' OR brought.partial = 1;
    undo := brought.id;
    target := brought.undoes;
  END LOOP;
END $$;

-- begun: a record that begins an effect, which has to fit into its run and beside what others are at.
CREATE OR REPLACE FUNCTION takeback_store.begun(
  its_seq bigint, its_kind text, its_run text, its_id text, its_key text, resource_named text, fact jsonb
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  own record;
  after text;
  run_number bigint;
  run_state text;
  other record;
  around text[];
  inside text[];
  its_undoes text := coalesce(fact->>'undoes', '');
  its_partial smallint := coalesce((fact->>'partial')::smallint, 0);
  its_waits text := coalesce(fact->>'waits', '');
  -- Nearly every effect touches one thing, of which the fact names nothing more.
  touched text[] := CASE WHEN fact ? 'touched' THEN ARRAY(SELECT jsonb_array_elements_text(fact->'touched')) ELSE ARRAY[resource_named] END;
  its_holds text[];
BEGIN
  SELECT number, state INTO run_number, run_state FROM takeback_store.runs WHERE id = its_run;
  SELECT seq, state INTO own FROM takeback_store.effects WHERE id = its_id;
  IF run_state IS DISTINCT FROM 'open' AND coalesce(own.state, '') NOT IN ('proposed', 'dropped')
     AND NOT (its_kind = 'propose' AND its_waits = 'person' AND run_state IS NOT NULL) THEN
    RAISE EXCEPTION 'Record %: run % is % and takes no new effects.', its_seq, left(its_run, 8), coalesce(run_state, 'not there')
      USING ERRCODE = 'TB002';
  END IF;

  -- One effect in flight per resource.
  IF EXISTS (SELECT 1 FROM takeback_store.in_flight f WHERE f.seq IS DISTINCT FROM own.seq) THEN
    around := ARRAY(SELECT jsonb_array_elements_text(fact->'around'));
    inside := ARRAY(SELECT jsonb_array_elements_text(fact->'inside'));
    SELECT e.id, e.state, h.resource INTO other
      FROM takeback_store.in_flight f CROSS JOIN LATERAL unnest(f.holds) AS h(resource)
      JOIN takeback_store.effects e ON e.seq = f.seq
      WHERE f.seq IS DISTINCT FROM own.seq
        AND (h.resource = ANY (around) OR EXISTS (SELECT 1 FROM unnest(inside) AS i(prefix) WHERE starts_with(h.resource, i.prefix)))
      ORDER BY f.seq LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION 'overlap' USING ERRCODE = CASE other.state WHEN 'stuck' THEN 'TB004' ELSE 'TB005' END,
        DETAIL = json_build_object('effect', other.id, 'resource', other.resource)::text;
    END IF;
  END IF;

  after := takeback_store.moved(own.state, its_kind, its_seq);
  IF its_undoes <> '' THEN
    PERFORM 1 FROM takeback_store.effects WHERE id = its_undoes;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'Record %: it undoes ''%'', which is not in the journal.', its_seq, its_undoes USING ERRCODE = 'TB002';
    END IF;
    BEGIN
      PERFORM takeback_store.taken_back(its_id, its_undoes, its_seq, true);
    EXCEPTION WHEN SQLSTATE 'TB002' THEN
      RAISE EXCEPTION 'overtaken' USING ERRCODE = 'TB006', DETAIL = json_build_object('effect', its_undoes)::text;
    END;
    -- What an undo leaves was decided when the record before this one was the newest.
    IF coalesce((fact->>'decided_at')::bigint, its_seq - 1) <> its_seq - 1 THEN
      RAISE EXCEPTION 'superseded' USING ERRCODE = 'TB010', DETAIL = json_build_object('effect', its_undoes)::text;
    END IF;
  END IF;

  IF after <> 'proposed' THEN
    its_waits := '';
  END IF;
  its_holds := CASE
    WHEN its_waits <> '' THEN NULL
    WHEN fact ? 'grounds' THEN ARRAY(SELECT jsonb_array_elements_text(fact->'grounds'))
    ELSE touched
  END;
  IF own.seq IS NULL THEN
    INSERT INTO takeback_store.effects (seq, id, run, nth, ordinal, state, told, key, undoes, partial, waits)
      VALUES (its_seq, its_id, run_number,
        coalesce((SELECT e.nth FROM takeback_store.effects e WHERE e.run = run_number ORDER BY e.seq DESC LIMIT 1), 0) + 1,
        coalesce((SELECT e.ordinal FROM takeback_store.effects e ORDER BY e.seq DESC LIMIT 1), 0) + 1,
        after, its_seq, its_key, its_undoes, its_partial, its_waits);
    INSERT INTO takeback_store.in_flight (seq, holds) VALUES (its_seq, its_holds);
  ELSE
    UPDATE takeback_store.effects SET state = after, told = its_seq, undoes = its_undoes, partial = its_partial,
      waits = its_waits WHERE seq = own.seq;
    IF own.state = 'dropped' THEN
      INSERT INTO takeback_store.in_flight (seq, holds) VALUES (own.seq, its_holds);
      PERFORM takeback_store.counted('dropped', -1);
    ELSE
      UPDATE takeback_store.in_flight SET holds = its_holds WHERE seq = own.seq;
    END IF;
    IF NOT resource_named = ANY (touched) THEN
      -- The proposal knew no paths yet, and named what is around them.
      DELETE FROM takeback_store.targets WHERE resource = resource_named AND effect = own.seq;
    END IF;
  END IF;
  IF own.seq IS NULL AND cardinality(touched) = 1 THEN
    INSERT INTO takeback_store.targets VALUES (touched[1], its_seq);
  ELSE
    INSERT INTO takeback_store.targets SELECT one, coalesce(own.seq, its_seq) FROM unnest(touched) AS t(one) ON CONFLICT DO NOTHING;
  END IF;
  IF fact ? 'needs' THEN
    INSERT INTO takeback_store.needs SELECT jsonb_array_elements_text(fact->'needs'), coalesce(own.seq, its_seq) ON CONFLICT DO NOTHING;
  END IF;
  RETURN true;
END $$;

-- gone_on: a record about an effect that was begun before.
CREATE OR REPLACE FUNCTION takeback_store.gone_on(its_seq bigint, its_kind text, its_id text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  own record;
  after text;
  open_after boolean;
BEGIN
  SELECT seq, id, state, undoes, partial, accepted_by, forgotten, pinned INTO own FROM takeback_store.effects WHERE id = its_id;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'Record %: it speaks of effect ''%'', which has no intent.', its_seq, its_id USING ERRCODE = 'TB002';
  END IF;
  after := takeback_store.moved(own.state, its_kind, its_seq);
  open_after := after IN ('proposed', 'intended', 'stuck');
  IF its_kind = 'done' THEN
    UPDATE takeback_store.effects SET state = after, ended = its_seq WHERE seq = own.seq;
  ELSIF its_kind <> 'decide' THEN
    UPDATE takeback_store.effects SET
      state = after,
      ended = CASE WHEN its_kind IN ('abort', 'stick', 'drop') THEN its_seq ELSE ended END,
      told = CASE WHEN its_kind = 'drop' THEN seq ELSE told END,  -- again what was proposed
      accepted_by = CASE WHEN its_kind IN ('accept', 'keep') THEN 'person' ELSE accepted_by END,
      forgotten = CASE WHEN its_kind = 'forget' THEN 1 ELSE forgotten END,
      pinned = CASE its_kind WHEN 'pin' THEN 1 WHEN 'unpin' THEN 0 ELSE pinned END,
      key = CASE WHEN after IN ('aborted', 'dropped') THEN '' ELSE key END,  -- free again
      waits = CASE WHEN open_after THEN waits ELSE '' END
      WHERE seq = own.seq;
  END IF;
  IF its_kind IN ('done', 'abort', 'drop') THEN
    DELETE FROM takeback_store.in_flight WHERE seq = own.seq;
  END IF;
  IF after IN ('aborted', 'dropped') THEN
    PERFORM takeback_store.counted(after, 1);
  END IF;
  IF own.state = 'dropped' THEN
    PERFORM takeback_store.counted('dropped', -1);
  END IF;
  IF its_kind IN ('accept', 'keep') AND own.accepted_by = '' THEN
    PERFORM takeback_store.counted('accepted', 1);
  END IF;
  IF its_kind = 'forget' AND own.forgotten = 0 THEN
    PERFORM takeback_store.counted('forgotten', 1);
  END IF;
  IF its_kind = 'pin' AND own.pinned = 0 THEN
    PERFORM takeback_store.counted('pinned', 1);
  ELSIF its_kind = 'unpin' AND own.pinned = 1 THEN
    PERFORM takeback_store.counted('pinned', -1);
  END IF;
  IF its_kind = 'done' AND own.undoes <> '' AND own.partial = 0 THEN
    PERFORM takeback_store.taken_back(own.id, own.undoes, its_seq, false);
  END IF;
  RETURN true;
END $$;

-- run_moved: a run is opened, told something, goes on, or ends; as run_after in model/run.py says it.
CREATE OR REPLACE FUNCTION takeback_store.run_moved(its_seq bigint, its_kind text, its_id text, its_at bigint, leased boolean, fact jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  own takeback_store.runs;
  after text := coalesce(fact->>'outcome', '');
  its_awaits text := coalesce(fact->>'awaits', '');
  due bigint := coalesce((fact->>'due')::bigint, 0);
  number_accepted bigint;
BEGIN
  SELECT * INTO own FROM takeback_store.runs WHERE id = its_id;
  IF its_kind = 'signal' THEN
    IF own.number IS NULL THEN
      RAISE EXCEPTION 'There is no run % that could take a signal.', left(its_id, 8) USING ERRCODE = 'TB007';
    ELSIF own.state NOT IN ('open', 'suspended') THEN
      RAISE EXCEPTION 'Run % has ended (%) and takes no signal.', left(its_id, 8), own.state USING ERRCODE = 'TB007';
    END IF;
    INSERT INTO takeback_store.signals (run, name, seq) VALUES (its_id, fact->>'name', its_seq);
    IF own.awaits <> '' AND own.awaits = fact->>'name' THEN
      UPDATE takeback_store.runs SET due_at = its_at WHERE number = own.number;
      PERFORM pg_notify('takeback_store.work', own.workflow);
    END IF;
    RETURN true;
  END IF;
  IF its_kind = 'open' AND NOT leased AND own.number IS NOT NULL THEN
    RAISE EXCEPTION 'Run % was opened before.', left(its_id, 8) USING ERRCODE = 'TB008';
  END IF;
  IF its_kind = 'close' AND after <> 'suspended' AND EXISTS (SELECT 1 FROM takeback_store.in_flight f
      JOIN takeback_store.effects e ON e.seq = f.seq WHERE e.run = own.number AND (e.state = 'proposed' OR e.state = 'intended') AND NOT (e.state = 'proposed' AND e.waits = 'person')) THEN
    RAISE EXCEPTION 'Record %: run % has an effect in flight and cannot end.', its_seq, left(its_id, 8) USING ERRCODE = 'TB002';
  END IF;
  IF NOT (own.number IS NULL AND its_kind = 'open' OR coalesce(own.state, '') IN ('open', 'suspended')) THEN
    RAISE EXCEPTION 'Record %: ''%'' cannot follow run state ''%''.', its_seq, its_kind, coalesce(own.state, 'none') USING ERRCODE = 'TB002';
  END IF;
  IF own.number IS NULL THEN
    INSERT INTO takeback_store.runs (id, name, agent, state, on_death, opened_at, key, workflow)
      VALUES (its_id, fact->>'name', fact->>'agent', 'open', fact->>'on_death', its_at, coalesce(fact->>'key', ''), coalesce(fact->>'workflow', ''));
    IF NOT leased THEN
      -- What a worker claims is a lease: there must be one.
      INSERT INTO takeback_store.leases (run, generation, expires_at, pid, boot, space, started, token)
        VALUES (its_id, 0, 0, 0, '', '', '', '') ON CONFLICT DO NOTHING;
    END IF;
    IF fact->>'on_death' = 'resume' THEN
      PERFORM pg_notify('takeback_store.work', fact->>'workflow');
    END IF;
  ELSIF its_kind = 'open' THEN
    UPDATE takeback_store.runs SET state = 'open', closed_at = 0, due_at = 0, awaits = '', note = '' WHERE number = own.number;
  ELSIF after = 'suspended' THEN
    -- A signal that came while the run was on its way to wait for it: then there is nothing to wait for.
    IF its_awaits <> '' AND EXISTS (SELECT 1 FROM takeback_store.signals s WHERE s.run = its_id AND s.name = its_awaits
        AND s.seq > coalesce((fact->>'read')::bigint, 0)) THEN
      due := its_at;
    END IF;
    UPDATE takeback_store.runs SET state = 'suspended', closed_at = its_at, due_at = due, awaits = its_awaits,
      note = coalesce(fact->>'note', '') WHERE number = own.number;
    IF own.on_death = 'resume' THEN
      PERFORM pg_notify('takeback_store.work', own.workflow);
    END IF;
  ELSE
    UPDATE takeback_store.runs SET state = after, closed_at = its_at, due_at = 0, awaits = '', note = coalesce(fact->>'note', '')
      WHERE number = own.number;
    IF after = 'accepted' THEN
      UPDATE takeback_store.effects SET accepted_by = 'run' WHERE run = own.number AND accepted_by = '' AND state = 'done';
      GET DIAGNOSTICS number_accepted = ROW_COUNT;
      IF number_accepted > 0 THEN
        PERFORM takeback_store.counted('accepted', number_accepted);
      END IF;
    END IF;
  END IF;
  RETURN true;
END $$;

-- append: all of them or none, fenced, chained to what is there, with what they do to the projections. `again` asks
-- first whether the same append was taken before: its answer may have been lost. An effect begins and ends once, so
-- where the first record says that, it is asked by; any other append has a token. For the plain appends that may come
-- after it (005_listing.sql) it can `tell` whether the run is open, and all that is held by effects in flight.
CREATE OR REPLACE FUNCTION takeback_store.append(
  lease_run text, lease_generation bigint, given_at bigint, its_token text, again boolean,
  kinds text[], runs text[], effects text[], keys text[], resources text[], covered bytea[], seals bytea[], kept bytea[], facts jsonb,
  tell boolean,
  OUT first_seq bigint, OUT made_at bigint, OUT hashes bytea, OUT is_open boolean, OUT held text
) LANGUAGE plpgsql AS $$
DECLARE
  its_seq bigint;
  its_hash bytea;
  is_plain boolean;
  kind text;
  went boolean;  -- an assignment is a third quicker than PERFORM
BEGIN
  LOCK TABLE takeback_store.turn IN EXCLUSIVE MODE;
  SELECT r.seq, substr(r.hash, 1, 32), r.key IS NOT NULL INTO its_seq, its_hash, is_plain FROM takeback_store.records r ORDER BY r.seq DESC LIMIT 1;
  IF NOT FOUND THEN
    its_seq := 0;
    its_hash := decode(repeat('00', 32), 'hex');
  ELSIF is_plain THEN
    went := takeback_store.list_plain(its_seq);
  END IF;
  IF again THEN
    IF its_token IS NOT NULL THEN
      SELECT r.seq INTO first_seq FROM takeback_store.records r WHERE r.token = its_token;
    ELSE
      SELECT r.seq INTO first_seq FROM takeback_store.effects e
        JOIN takeback_store.records r ON r.seq = CASE kinds[1] WHEN 'intent' THEN e.told ELSE e.ended END AND r.kind = kinds[1]
        WHERE e.id = effects[1] AND r.body = kept[1];  -- whoever took the run over may have ended it otherwise
    END IF;
    IF FOUND THEN
      -- Who hears of an intent too late must not act on it: whoever has the run now has settled it.
      IF 'intent' = ANY (kinds) AND NOT EXISTS (SELECT 1 FROM takeback_store.leases l
          WHERE l.run = lease_run AND l.generation = lease_generation AND l.pid <> 0) THEN
        RAISE EXCEPTION 'lease lost' USING ERRCODE = 'TB001';
      END IF;
      SELECT min(r.at), string_agg(substr(r.hash, 1, 32), '' ORDER BY r.seq) INTO made_at, hashes FROM takeback_store.records r
        WHERE r.seq >= first_seq AND r.seq < first_seq + cardinality(kinds);
      RETURN;
    END IF;
  END IF;
  IF lease_run IS NOT NULL THEN
    -- Whoever takes the run over waits for the turn as well: so they see what was appended before.
    PERFORM 1 FROM takeback_store.leases l WHERE l.run = lease_run AND l.generation = lease_generation AND l.pid <> 0;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'lease lost' USING ERRCODE = 'TB001';
    END IF;
  END IF;
  first_seq := its_seq + 1;
  made_at := coalesce(given_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
  hashes := '';
  FOR n IN 1 .. cardinality(kinds) LOOP
    kind := kinds[n];
    its_seq := its_seq + 1;
    -- As model/record.py chains them; what is covered of an unsalted body that was erased is the hash itself, in a copy.
    its_hash := CASE WHEN seals[n] = '\x00'::bytea THEN covered[n] ELSE
      sha256(its_hash || convert_to(format(E'%s %s %s %s %s\n', its_seq, made_at, kind, runs[n], effects[n]), 'UTF8') || covered[n]) END;
    hashes := hashes || its_hash;
    INSERT INTO takeback_store.records (seq, at, kind, run, effect, token, hash, body)
      VALUES (its_seq, made_at, kind, runs[n], effects[n], CASE n WHEN 1 THEN its_token END, its_hash || seals[n], kept[n]);
    IF kind IN ('intent', 'propose') THEN
      went := takeback_store.begun(its_seq, kind, runs[n], effects[n], keys[n], resources[n], facts->(n - 1));
    ELSIF kind IN ('done', 'abort', 'stick', 'drop', 'decide', 'accept', 'keep', 'pin', 'unpin', 'forget', 'erase') THEN
      went := takeback_store.gone_on(its_seq, kind, effects[n]);
    ELSIF kind IN ('open', 'close', 'signal') THEN
      went := takeback_store.run_moved(its_seq, kind, runs[n], made_at, lease_run IS NOT NULL, facts->(n - 1));
    END IF;
  END LOOP;
  IF tell THEN
    is_open := EXISTS (SELECT 1 FROM takeback_store.runs r WHERE r.id = lease_run AND r.state = 'open');
    IF EXISTS (SELECT 1 FROM takeback_store.in_flight) THEN
      held := (SELECT json_agg(h) FROM takeback_store.in_flight f CROSS JOIN unnest(f.holds) AS h);
    END IF;
  END IF;
END $$;

-- append_to_projects: `append`, and what the records tell of projects. Asked again it finds everything there already.
CREATE OR REPLACE FUNCTION takeback_store.append_to_projects(
  lease_run text, lease_generation bigint, given_at bigint, its_token text, again boolean,
  kinds text[], runs text[], effects text[], keys text[], resources text[], covered bytea[], seals bytea[], kept bytea[], facts jsonb,
  tell boolean,
  OUT first_seq bigint, OUT made_at bigint, OUT hashes bytea, OUT is_open boolean, OUT held text
) LANGUAGE plpgsql AS $$
DECLARE
  fact jsonb;
  one jsonb;
  its_number bigint;
  its_effect bigint;
BEGIN
  SELECT a.first_seq, a.made_at, a.hashes, a.is_open, a.held INTO first_seq, made_at, hashes, is_open, held
    FROM takeback_store.append(lease_run, lease_generation, given_at, its_token, again, kinds, runs, effects, keys, resources,
      covered, seals, kept, facts, tell) a;
  FOR n IN 1 .. cardinality(kinds) LOOP
    fact := facts->(n - 1);
    CONTINUE WHEN NOT fact ? 'projects';
    FOR one IN SELECT jsonb_array_elements(fact->'projects') LOOP
      its_number := takeback_store.noted(one->>'root', (one->>'marked')::smallint, (one->>'began')::smallint, (one->>'made')::smallint);
      IF kinds[n] = 'open' THEN
        UPDATE takeback_store.runs r SET project = one->>'root' WHERE r.id = runs[n] AND r.project = '';
      ELSIF (one->>'made')::smallint = 0 THEN
        SELECT e.seq INTO its_effect FROM takeback_store.effects e WHERE e.id = effects[n];
        INSERT INTO takeback_store.scopes (project, effect, told) VALUES (its_number, its_effect, first_seq + n - 1)
          ON CONFLICT (project, effect) DO UPDATE SET told = excluded.told;
      END IF;
    END LOOP;
  END LOOP;
END $$;
