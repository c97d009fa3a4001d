-- Seals (decision 0046): beside the hash of a record stands what it covers of the body (`covered` in model/record.py), so that
-- the body can be erased. Records of before stay as they are. The functions that append take seals; both are in ../append.sql.
DROP FUNCTION IF EXISTS takeback_store.append(text, bigint, bigint, text, boolean, text[], text[], text[], text[], text[], bytea[], bytea[], jsonb, boolean);
DROP FUNCTION IF EXISTS takeback_store.append_to_projects(text, bigint, bigint, text, boolean, text[], text[], text[], text[], text[], bytea[], bytea[], jsonb, boolean);

-- redacting: what is being erased: records, while that is allowed, and blobs until they are gone. Empty most of the time.
CREATE TABLE takeback_store.redacting (
  seq    bigint NOT NULL,            -- of a record; 0: a blob, or the work that is left
  digest bytea NOT NULL,
  PRIMARY KEY (seq, digest)
);

-- A record changes only by redaction, and by that only its body and its seal.
DROP TRIGGER records_are_final ON takeback_store.records;
CREATE TRIGGER records_are_final BEFORE DELETE OR TRUNCATE ON takeback_store.records
  FOR EACH STATEMENT EXECUTE FUNCTION takeback_store.records_are_final();
CREATE FUNCTION takeback_store.records_are_redacted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (NEW.seq, NEW.at, NEW.kind, NEW.run, NEW.effect, substr(NEW.hash, 1, 32)) IS DISTINCT FROM
     (OLD.seq, OLD.at, OLD.kind, OLD.run, OLD.effect, substr(OLD.hash, 1, 32))
     OR NOT EXISTS (SELECT 1 FROM takeback_store.redacting r WHERE r.seq = OLD.seq) THEN
    RAISE EXCEPTION 'records are final' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER records_are_redacted BEFORE UPDATE ON takeback_store.records
  FOR EACH ROW EXECUTE FUNCTION takeback_store.records_are_redacted();
