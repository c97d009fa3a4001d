-- Drops: a change that was not made stays for a while, in the state 'dropped', and can be made after all. Its time being
-- over, `forget` makes it an aborted one.

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
    ELSE CASE WHEN event = 'forget' AND state = 'dropped' THEN 'aborted' WHEN event IN ('accept', 'keep', 'pin', 'unpin', 'forget') AND state IN ('done', 'undone') THEN state END
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
      ended = CASE WHEN its_kind IN ('abort', 'stick', 'drop') THEN its_seq ELSE ended END,
      accepted_by = CASE WHEN its_kind IN ('accept', 'keep') THEN 'person' ELSE accepted_by END,
      forgotten = CASE WHEN its_kind = 'forget' AND own.state <> 'dropped' THEN 1 ELSE forgotten END,
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
  IF its_kind = 'forget' AND own.forgotten = 0 AND own.state <> 'dropped' THEN
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

-- begun and append learn of the state and of the kind; the rest of them is as it was.
DO $do$
DECLARE
  one regprocedure;
  made text;
BEGIN
  FOR one IN SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname = trim(trailing '.' from 'takeback_store.') AND p.proname IN ('begun', 'append') LOOP
    made := replace(pg_get_functiondef(one), '''done'', ''abort'', ''stick'', ''decide''', '''done'', ''abort'', ''stick'', ''drop'', ''decide''');
    made := replace(made, 'own.state IS DISTINCT FROM ''proposed''', 'coalesce(own.state, '''') NOT IN (''proposed'', ''dropped'')');
    made := replace(made, 'UPDATE takeback_store.in_flight SET holds = its_holds WHERE seq = own.seq;',
      'IF own.state = ''dropped'' THEN
      INSERT INTO takeback_store.in_flight (seq, holds) VALUES (own.seq, its_holds);
      PERFORM takeback_store.counted(''dropped'', -1);
    ELSE
      UPDATE takeback_store.in_flight SET holds = its_holds WHERE seq = own.seq;
    END IF;');
    EXECUTE made;
  END LOOP;
END $do$;
