-- Plain records (takeback/storage/postgres/fast_append.py) are appended by one INSERT; what they do to effects is written later,
-- for many at once. Any other append comes after all of them are listed: so only the newest records can be unlisted.

-- list_plain: what the records up to the newest one, which is plain, do to the tables. Whoever calls it has the turn, or
-- shares it with plain appends only.
CREATE FUNCTION takeback_store.list_plain(newest bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  done_before bigint := coalesce((SELECT n FROM takeback_store.tally WHERE name = 'listed'), 0);
  those bigint[];  -- by number: so the server expects few, and looks each of them up, however many records there are
BEGIN
  IF done_before >= newest THEN
    RETURN false;
  END IF;
  done_before := coalesce((SELECT r.seq FROM takeback_store.records r WHERE r.seq > done_before AND r.key IS NULL
    ORDER BY r.seq DESC LIMIT 1), done_before);
  those := ARRAY(SELECT generate_series(done_before + 1, newest));
  WITH fresh AS MATERIALIZED (
    SELECT r.seq, r.kind, r.effect, r.run, r.key, r.resource FROM unnest(those) AS t(seq) JOIN takeback_store.records r ON r.seq = t.seq
      WHERE r.kind IN ('intent', 'done')
  ), born AS MATERIALIZED (
    SELECT b.seq, b.effect, b.run, b.key, b.resource, d.seq AS ended FROM fresh b
      LEFT JOIN fresh d ON d.effect = b.effect AND d.kind = 'done' WHERE b.kind = 'intent'
  ), places AS MATERIALIZED (
    SELECT r.id, r.number, coalesce((SELECT e.nth FROM takeback_store.effects e WHERE e.run = r.number ORDER BY e.seq DESC LIMIT 1), 0) AS effects
      FROM (SELECT DISTINCT run FROM born) AS b JOIN takeback_store.runs r ON r.id = b.run
  ), aimed AS (
    INSERT INTO takeback_store.targets (resource, effect) SELECT resource, seq FROM born
  ), flying AS (
    INSERT INTO takeback_store.in_flight (seq, holds) SELECT seq, ARRAY[resource] FROM born WHERE ended IS NULL
  ), landed AS (
    -- Those that were listed when they were in flight.
    UPDATE takeback_store.effects e SET state = 'done', ended = d.seq FROM fresh d
      WHERE d.kind = 'done' AND d.effect NOT IN (SELECT effect FROM born) AND e.id = d.effect RETURNING e.seq
  ), no_longer AS (
    DELETE FROM takeback_store.in_flight f USING landed l WHERE f.seq = l.seq
  )
  INSERT INTO takeback_store.effects (seq, id, run, nth, ordinal, state, told, ended, key)
    SELECT b.seq, b.effect, p.number, p.effects + row_number() OVER (PARTITION BY b.run ORDER BY b.seq),
      coalesce((SELECT e.ordinal FROM takeback_store.effects e ORDER BY e.seq DESC LIMIT 1), 0) + row_number() OVER (ORDER BY b.seq),
      CASE WHEN b.ended IS NULL THEN 'intended' ELSE 'done' END, b.seq, coalesce(b.ended, 0), b.key
      FROM born b JOIN places p ON p.id = b.run ORDER BY b.seq;
  UPDATE takeback_store.tally SET n = newest WHERE name = 'listed';
  IF NOT FOUND THEN
    INSERT INTO takeback_store.tally (name, n) VALUES ('listed', newest);
  END IF;
  RETURN true;
END $$;

-- unlisted: whether there is a record that the tables do not tell of.
CREATE FUNCTION takeback_store.unlisted() RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT coalesce((SELECT r.key IS NOT NULL AND r.seq > coalesce((SELECT n FROM takeback_store.tally WHERE name = 'listed'), 0)
    FROM takeback_store.records r ORDER BY r.seq DESC LIMIT 1), false)
$$;

-- list_all: the same for whoever wants to read, or has appended many; beside plain appends, which come after what it sees.
-- Alone in its transaction it need not be on the disk when it is answered: what is lost of it is made again.
CREATE FUNCTION takeback_store.list_all(alone boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  newest bigint;
BEGIN
  IF alone THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  LOCK TABLE takeback_store.turn IN SHARE UPDATE EXCLUSIVE MODE;
  SELECT r.seq INTO newest FROM takeback_store.records r WHERE takeback_store.unlisted() ORDER BY r.seq DESC LIMIT 1;
  IF FOUND THEN
    PERFORM takeback_store.list_plain(newest);
  END IF;
END $$;
