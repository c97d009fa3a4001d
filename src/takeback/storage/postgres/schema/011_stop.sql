-- A claim passes over what is stopped.
DROP FUNCTION takeback_store.claim(text[], bigint, text, text, integer, text, text, bigint, text, boolean, text[]);

-- claim: the durable run of one of these workflows that is due the longest and that nobody holds: released, past its
-- time, or held by one of the `dead`, whom the caller knows. What is stopped is passed over. No claim waits for another:
-- what one looks at right now the others pass over.
CREATE FUNCTION takeback_store.claim(
  workflows text[], due_now bigint, its_boot text, its_space text, its_pid integer, its_started text, its_machine text, lasts bigint,
  its_token text, again boolean, dead text[], stopped_agents text[], stopped_runs text[]
) RETURNS TABLE (run text, generation bigint, expires_at bigint) LANGUAGE plpgsql AS $$
DECLARE
  at bigint := takeback_store.now_us();
  its_workflow text;
  seen record;
  best_since bigint;
  best_number bigint;
  best_id text;
BEGIN
  IF again THEN
    RETURN QUERY SELECT l.run, l.generation, l.expires_at FROM takeback_store.leases l
      WHERE l.boot = its_boot AND l.space = its_space AND l.pid = its_pid AND l.started = its_started AND l.token = its_token AND l.pid <> 0;
    IF FOUND THEN
      RETURN;
    END IF;
  END IF;
  LOCK TABLE takeback_store.turn IN SHARE MODE;
  LOOP
    best_id := NULL;
    FOREACH its_workflow IN ARRAY workflows LOOP
      -- Nearly all runs that are due are either new or waited for something; each kind stands in the index in its order.
      SELECT r.opened_at AS since, r.number, r.id INTO seen
        FROM takeback_store.runs r JOIN takeback_store.leases l ON l.run = r.id
        WHERE r.workflow = its_workflow AND r.on_death = 'resume' AND (r.state = 'open' OR r.state = 'suspended') AND r.due_at = 0
          AND (l.pid = 0 OR l.expires_at < at OR cardinality(dead) > 0 AND concat_ws(' ', l.boot, l.space, l.pid, l.started) = ANY (dead))
          AND NOT r.agent = ANY (stopped_agents) AND NOT r.id = ANY (stopped_runs)
        ORDER BY r.due_at, r.number LIMIT 1 FOR UPDATE OF l SKIP LOCKED;
      IF FOUND AND (best_id IS NULL OR (seen.since, seen.number) < (best_since, best_number)) THEN
        best_since := seen.since;
        best_number := seen.number;
        best_id := seen.id;
      END IF;
      SELECT r.due_at AS since, r.number, r.id INTO seen
        FROM takeback_store.runs r JOIN takeback_store.leases l ON l.run = r.id
        WHERE r.workflow = its_workflow AND r.on_death = 'resume' AND (r.state = 'open' OR r.state = 'suspended')
          AND r.due_at > 0 AND r.due_at <= due_now
          AND (l.pid = 0 OR l.expires_at < at OR cardinality(dead) > 0 AND concat_ws(' ', l.boot, l.space, l.pid, l.started) = ANY (dead))
          AND NOT r.agent = ANY (stopped_agents) AND NOT r.id = ANY (stopped_runs)
        ORDER BY r.due_at, r.number LIMIT 1 FOR UPDATE OF l SKIP LOCKED;
      IF FOUND AND (best_id IS NULL OR (seen.since, seen.number) < (best_since, best_number)) THEN
        best_since := seen.since;
        best_number := seen.number;
        best_id := seen.id;
      END IF;
    END LOOP;
    IF best_id IS NULL THEN
      RETURN;
    END IF;
    -- Whoever held it may have ended it, or sent it to sleep, between our look and our lock.
    PERFORM 1 FROM takeback_store.runs r WHERE r.number = best_number AND (r.state = 'open' OR r.state = 'suspended') AND r.due_at <= greatest(due_now, 0);
    IF FOUND THEN
      RETURN QUERY UPDATE takeback_store.leases AS l SET generation = l.generation + 1, expires_at = takeback_store.now_us() + lasts,
        pid = its_pid, boot = its_boot, space = its_space, started = its_started, machine = its_machine, token = its_token
        WHERE l.run = best_id RETURNING l.run, l.generation, l.expires_at;
      RETURN;
    END IF;
  END LOOP;
END $$;
