-- now_us: the clock of the store, in microseconds since 1970.
CREATE FUNCTION takeback_store.now_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- take: the next generation of a run's lease, if nobody holds it, or only the generation that the caller knows to be
-- free; else whose it is. The same `token` asked again gets what it was given.
CREATE FUNCTION takeback_store.take(
  its_run text, its_boot text, its_space text, its_pid integer, its_started text, given_now bigint, lasts bigint,
  its_token text, free_generation bigint, when_expired boolean
) RETURNS TABLE (taken boolean, generation bigint, boot text, space text, pid integer, started text, expires_at bigint, expired boolean)
LANGUAGE plpgsql AS $$
DECLARE
  at bigint := coalesce(given_now, takeback_store.now_us());
  found takeback_store.leases;
BEGIN
  INSERT INTO takeback_store.leases AS l (run, generation, expires_at, pid, boot, space, started, token)
    VALUES (its_run, 1, at + lasts, its_pid, its_boot, its_space, its_started, its_token)
    ON CONFLICT (run) DO NOTHING RETURNING l.* INTO found;
  IF found.run IS NULL THEN
    SELECT l.* INTO found FROM takeback_store.leases l WHERE l.run = its_run FOR UPDATE;
    at := coalesce(given_now, takeback_store.now_us());
    IF found.token <> its_token AND (found.pid = 0 OR found.generation = free_generation OR when_expired AND found.expires_at < at) THEN
      UPDATE takeback_store.leases AS l SET generation = l.generation + 1, expires_at = at + lasts, pid = its_pid,
        boot = its_boot, space = its_space, started = its_started, token = its_token
        WHERE l.run = its_run RETURNING l.* INTO found;
    END IF;
  END IF;
  RETURN QUERY SELECT found.token = its_token, found.generation, found.boot, found.space, found.pid, found.started,
    found.expires_at, found.expires_at < at;
END $$;
