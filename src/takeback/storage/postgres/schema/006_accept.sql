-- The words of format 2: what was `keep` is `accept`, and an effect can be pinned. Records are not rewritten: the functions
-- below take `keep` as well, because a store of format 1 can be copied into this one.

ALTER TABLE takeback_store.effects RENAME kept_by TO accepted_by;
ALTER TABLE takeback_store.effects ADD pinned smallint NOT NULL DEFAULT 0;
CREATE INDEX pinned_effects ON takeback_store.effects (seq) WHERE pinned = 1;

ALTER TABLE takeback_store.runs DROP CONSTRAINT runs_state_check;
ALTER TABLE takeback_store.runs DROP CONSTRAINT runs_on_death_check;
ALTER TABLE takeback_store.runs DISABLE TRIGGER ended_runs_stay_ended;
UPDATE takeback_store.runs SET state = 'accepted' WHERE state = 'kept';
UPDATE takeback_store.runs SET on_death = 'accept' WHERE on_death = 'keep';
ALTER TABLE takeback_store.runs ENABLE TRIGGER ended_runs_stay_ended;
ALTER TABLE takeback_store.runs ADD CONSTRAINT runs_state_check CHECK (state IN ('open', 'suspended', 'accepted', 'undone', 'partly undone'));
ALTER TABLE takeback_store.runs ADD CONSTRAINT runs_on_death_check CHECK (on_death IN ('undo', 'accept', 'leave', 'finish', 'resume'));
UPDATE takeback_store.tally SET name = 'accepted' WHERE name = 'kept';

-- moved: the state after an event, as TRANSITIONS in model/effect.py has it; an event that does not fit is an alarm.
CREATE OR REPLACE FUNCTION takeback_store.moved(state text, event text, seq bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  after text := CASE event
    WHEN 'propose' THEN CASE WHEN state IS NULL THEN 'proposed' END
    WHEN 'intent' THEN CASE WHEN state IS NULL OR state = 'proposed' THEN 'intended' END
    WHEN 'decide' THEN CASE WHEN state = 'proposed' THEN 'proposed' END
    WHEN 'done' THEN CASE WHEN state IN ('intended', 'stuck') THEN 'done' END
    WHEN 'abort' THEN CASE WHEN state IN ('proposed', 'intended', 'stuck') THEN 'aborted' END
    WHEN 'stick' THEN CASE WHEN state = 'intended' THEN 'stuck' END
    WHEN 'taken back' THEN CASE WHEN state = 'done' THEN 'undone' END
    WHEN 'brought back' THEN CASE WHEN state = 'undone' THEN 'done' END
    ELSE CASE WHEN event IN ('accept', 'keep', 'pin', 'unpin', 'forget') AND state IN ('done', 'undone') THEN state END
  END;
BEGIN
  IF after IS NULL THEN
    RAISE EXCEPTION 'Record %: ''%'' cannot follow state ''%''.', seq, event, coalesce(state, 'none') USING ERRCODE = 'TB002';
  END IF;
  RETURN after;
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
      ended = CASE WHEN its_kind IN ('abort', 'stick') THEN its_seq ELSE ended END,
      accepted_by = CASE WHEN its_kind IN ('accept', 'keep') THEN 'person' ELSE accepted_by END,
      forgotten = CASE WHEN its_kind = 'forget' THEN 1 ELSE forgotten END,
      pinned = CASE its_kind WHEN 'pin' THEN 1 WHEN 'unpin' THEN 0 ELSE pinned END,
      key = CASE WHEN after = 'aborted' THEN '' ELSE key END,  -- free again
      waits = CASE WHEN open_after THEN waits ELSE '' END
      WHERE seq = own.seq;
  END IF;
  IF its_kind IN ('done', 'abort') THEN
    DELETE FROM takeback_store.in_flight WHERE seq = own.seq;
  END IF;
  IF after = 'aborted' THEN
    PERFORM takeback_store.counted(after, 1);
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

-- run_moved and append change in words alone: what they say of a run that ended well, and which kinds tell of effects.
DO $do$
DECLARE
  one regprocedure;
  made text;
BEGIN
  FOR one IN SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname = trim(trailing '.' from 'takeback_store.') AND p.proname IN ('run_moved', 'append') LOOP
    made := replace(pg_get_functiondef(one), '''decide'', ''keep'', ''forget''', '''decide'', ''accept'', ''keep'', ''pin'', ''unpin'', ''forget''');
    made := replace(made, 'number_kept', 'number_accepted');
    made := replace(made, 'kept_by', 'accepted_by');
    made := replace(made, '''kept''', '''accepted''');
    EXECUTE made;
  END LOOP;
END $do$;
