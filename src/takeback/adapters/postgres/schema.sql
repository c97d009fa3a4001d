-- What takeback keeps in a database that it protects. Images of rows are written by triggers, in the same transaction
-- as the change they belong to; the row in `op` is the marker that says the change happened.

create schema takeback;
comment on schema takeback is
  'Lets takeback undo changes: who changed what, and the rows before and after. Remove it with: takeback sql unprotect';
grant usage on schema takeback to public;

-- One row for each effect. `no` is only a shorter name for it in the logs.
create table takeback.op (
  no         bigint generated always as identity primary key,
  id         text not null unique,
  run        text not null,
  agent      text not null,
  summary    text not null,
  role       text not null default session_user,
  started    timestamptz not null default clock_timestamp(),
  undoes     text,                            -- the effect that this one takes back
  partial    boolean not null default false,  -- and did so only in part
  undone_by  text,                            -- the effect that took this one back; null: it is in force
  logs       int[],                           -- which logs have images of it; null: not known, all must be asked
  images     jsonb,                           -- how many there are in each: of rows before and after; null: not known
  mirrors    bigint,                          -- its images are those of this one …
  turned     boolean not null default false,  -- … with before and after exchanged
  told       jsonb,                           -- what it changed, in numbers
  moves      jsonb,                           -- tables that it made or dropped
  forgotten  boolean not null default false,  -- its images are gone
  rebased    boolean not null default false,  -- an undo in part, which gave later effects another past
  closed     boolean not null default false,  -- of a program with its own driver: it has ended
  shape      jsonb                            -- and what the schema looked like when it began
);

-- Counts statements. Of two that changed the same row the later one has the higher number, because the row was locked
-- when the number was drawn.
create sequence takeback.step;

-- One row for each log of images. A partitioned table has one log, whichever partition a row is in.
create table takeback.log (
  no        int generated always as identity primary key,
  relation  oid not null unique,
  name      text not null,                                    -- as it was called when this was written
  shape     jsonb not null,                                   -- [number, type, modifier, collation, name] of each column
  since     bigint not null default nextval('takeback.step')  -- the shape is this one since then
);

-- The shapes that a log has had. Images are read by the one that held when they were written.
create table takeback.form (
  log    int not null references takeback.log on delete cascade,
  since  bigint not null,
  shape  jsonb not null
);
create index on takeback.form (log, since);

-- One row for each table that has the triggers.
create table takeback.captured (
  relation  oid primary key,
  log       int not null references takeback.log on delete cascade,
  shape     jsonb not null,
  by_row    boolean not null
);
grant select on takeback.log, takeback.captured to public;

-- Sequences that a TRUNCATE … RESTART IDENTITY may have set back.
create table takeback.counter (
  op        bigint not null,
  sequence  oid not null,
  value     bigint not null,
  called    boolean not null
);
create index on takeback.counter (op);

-- Effects of which a statement changed many rows: the images of it are not in the index of the log.
create table takeback.wide (op bigint not null);
create index on takeback.wide (op);

-- The marker. Whoever does the same effect at the same time waits here.
create function takeback.open(id text, run text, agent text, summary text, undoes text, partial boolean) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare made bigint;
begin
  perform pg_advisory_xact_lock(hashtextextended(open.id, 4));
  insert into takeback.op (id, run, agent, summary, undoes, partial)
  values (open.id, open.run, open.agent, open.summary, open.undoes, open.partial) returning no into made;
  return made;
end $$;

-- Whoever owns this schema, and superusers.
create function takeback.keeper() returns boolean
language sql stable set search_path = pg_catalog, pg_temp
as $$ select pg_has_role(session_user, n.nspowner, 'usage') from pg_namespace n where n.nspname = 'takeback' $$;

-- How many images an op has in a log. Not by what the server counted: what was rolled back to a savepoint is gone.
create function takeback.numbers(no bigint, log int) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp
as $$
declare
  few text := case when exists (select from takeback.wide w where w.op = numbers.no) then '' else ' and not wide' end;
  found jsonb;
begin
  execute format('select jsonb_build_array(count(*) filter (where sign < 0), count(*) filter (where sign > 0)) '
    'from takeback.log_%s where op = %s%s', numbers.log, numbers.no, few) into found;
  return found;
end $$;

create function takeback.close(no bigint, logs int[], told jsonb, moves jsonb) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $$
  update takeback.op o set logs = close.logs, told = close.told, moves = close.moves,
    images = (select coalesce(jsonb_object_agg(l, takeback.numbers(close.no, l)), '{}') from unnest(close.logs) l)
  where o.no = close.no and o.logs is null and (o.role = session_user or takeback.keeper())
$$;

create function takeback.find(id text, out no bigint, out undone_by text, out told jsonb)
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select o.no, o.undone_by, o.told from takeback.op o where o.id = find.id $$;

-- For tables whose rows are somewhere else.
create function takeback.refuse() returns trigger language plpgsql set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'takeback cannot take back changes of the foreign table %.%', tg_table_schema, tg_table_name
    using errcode = '0A000';
end $$;
