-- The triggers of a table cost every statement of everybody, whether a run works or not. So they are attached while a run
-- works and removed afterwards, unless a table is marked to have them always. In use they are as long as
--   a session of takeback, or one of a program that has written, holds the advisory lock (1952539244, 1) shared, which
--   ends with the session, or
--   a program has not been ended: it may go on writing though its takeback was killed. After a day that counts no longer;
--   should the program still be at work then, its end tells that the capture was switched off.
alter table takeback.log add column if not exists always boolean not null default false;
create index if not exists op_at_work on takeback.op (started) where logs is null and not closed;

create function takeback.at_work() returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$
  select exists (select from takeback.op o
    where o.logs is null and not o.closed and o.started > clock_timestamp() - interval '1 day')
$$;

-- For this transaction: never in front of others for longer than `wait` milliseconds, and not at all with 0. Null: as long
-- as the session has set. A vacuum that the server began by itself gives way to whoever has waited for deadlock_timeout, which
-- only a superuser may shorten.
create function takeback.take(home text, mode text, wait int) returns void
language plpgsql set search_path = pg_catalog, pg_temp
as $$
begin
  if wait > 0 then
    perform set_config('lock_timeout', wait || 'ms', true);
    if (select r.rolsuper from pg_roles r where r.rolname = current_user) then
      perform set_config('deadlock_timeout', greatest(wait / 2, 1) || 'ms', true);
    end if;
  end if;
  execute format('lock table only %s in %s mode%s', home, mode, case when wait = 0 then ' nowait' else '' end);
end $$;

create function takeback.home(relation oid) returns text
language sql stable set search_path = pg_catalog, pg_temp
as $$ select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where c.oid = home.relation $$;

-- Last of all triggers by name, and fired in every mode of the session. The condition is all that a statement of others pays
-- for them, so it says no more than it must: what was never set is null, and so is its comparison, which does not count.
-- `anew`: also those that are there. With the rights of whoever calls it.
create function takeback.make_triggers(relation oid, wait int, anew boolean default false) returns void
language plpgsql set search_path = pg_catalog, pg_temp
as $$
declare
  known takeback.captured;
  there pg_class;
  its_home text := takeback.home(make_triggers.relation);
  event text;
  name text;
  found_one pg_trigger;
  how text;
begin
  select * into known from takeback.captured k where k.relation = make_triggers.relation;
  if known.relation is null or its_home is null then return; end if;
  perform takeback.take(its_home, 'share row exclusive', wait);
  select * into there from pg_class c where c.oid = make_triggers.relation;
  foreach event in array array['insert', 'update', 'delete', 'truncate'] loop
    name := 'zz_takeback_' || left(event, 1);
    select * into found_one from pg_trigger g where g.tgrelid = make_triggers.relation and g.tgname = name;
    if found_one.oid is null or anew
      or event <> 'truncate' and ((found_one.tgtype & 1) = 1) <> known.by_row then
      how := case when event = 'truncate' or known.by_row then '' else ' referencing'
        || case when event in ('update', 'delete') then ' old table as takeback_old' else '' end
        || case when event in ('insert', 'update') then ' new table as takeback_new' else '' end end;
      execute format('create or replace trigger %I %s %s on %s%s for each %s when '
        '((current_setting(''takeback.op'', true) <> '''' or current_setting(''application_name'') like ''p%%.takeback'')) '
        'execute function takeback.capture_%s_%s()',
        name, case event when 'truncate' then 'before' else 'after' end, event, its_home, how,
        case when known.by_row and event <> 'truncate' then 'row' else 'statement' end, make_triggers.relation, left(event, 1));
      found_one.tgenabled := 'O';
    end if;
    if found_one.tgenabled <> 'A' then
      execute format('alter table %s%s enable always trigger %I', case there.relkind when 'p' then 'only ' else '' end,
        its_home, name);
    end if;
  end loop;
end $$;

-- The same for everybody, with the rights of the schema's owner, in a transaction of its own. It need not be durable by
-- itself: the first change that it is for makes it so.
create function takeback.attach(relation oid, wait int) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $$
  select set_config('synchronous_commit', 'off', true);
  select takeback.make_triggers(relation, wait);
$$;

-- False: they are in use, or are to stay.
create function takeback.detach(relation oid, wait int) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  its_home text := takeback.home(detach.relation);
  one record;
begin
  if not pg_try_advisory_xact_lock(1952539244, 1) then return false; end if;
  if takeback.at_work() then return false; end if;
  perform set_config('synchronous_commit', 'off', true);
  perform from takeback.captured k join takeback.log l on l.no = k.log where k.relation = detach.relation and not l.always;
  if not found or its_home is null then return false; end if;
  perform takeback.take(its_home, 'access exclusive', wait);
  for one in select g.tgname from pg_trigger g where g.tgrelid = detach.relation and g.tgname like 'zz\_takeback\__' loop
    execute format('drop trigger %I on %s', one.tgname, its_home);
  end loop;
  return true;
end $$;
