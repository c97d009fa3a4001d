-- A program with its own driver, which says so by the setting takeback.op = 'p…', or by its application_name = 'p….takeback':
-- one of them stays where a program has connection options of its own. While one of its transactions goes on nobody can close
-- the effect, and once that is closed nothing can be added to it.
create function takeback.program(op bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
  perform pg_advisory_xact_lock_shared(1952539243, program.op::int);
  perform from takeback.op o where o.no = program.op and not o.closed;
  if not found then
    raise exception 'the run that this program belongs to has ended' using errcode = '55000';
  end if;
  -- As long as this session lives the triggers stay, so that what it writes after the end of its run is refused.
  perform pg_advisory_lock_shared(1952539244, 1);
  return program.op;
end $$;

create function takeback.current_program() returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select case when current_setting('takeback.op', true) ~ '^p[0-9]+$' then substr(current_setting('takeback.op'), 2)::bigint
    when current_setting('takeback.op', true) <> '' then null
    else substring(current_setting('application_name') from '^p([0-9]{1,9})\.takeback$')::bigint end
$$;

create function takeback.named_program() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
  return case when takeback.current_program() is not null then takeback.program(takeback.current_program()) end;
end $$;

-- Its schema changes, where the role may create event triggers: the definitions before and after each command, and what the
-- command loses. A command says only afterwards what it has done, so it is run once on trial, and rolled back.
alter table takeback.ddl add column if not exists pending boolean not null default false;

create function takeback.ddl_begins(tag text, query text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare program bigint := takeback.program(takeback.current_program());
begin
  if tag !~ ('^((CREATE|ALTER|DROP) (TABLE|INDEX|VIEW|MATERIALIZED VIEW|SEQUENCE|TYPE|DOMAIN|FUNCTION|PROCEDURE|ROUTINE|'
      || 'TRIGGER|RULE|POLICY|SCHEMA|STATISTICS)|CREATE TABLE AS|SELECT INTO|COMMENT|GRANT|REVOKE)$')
    or query ~* '\mconcurrently\M' then
    raise exception 'takeback cannot take back % of a program', tag
      using errcode = '0A000', hint = 'Nothing was changed. Do it yourself, outside takeback.';
  end if;
  if exists (select from takeback.ddl d where d.op = program and d.pending) then
    return false;
  end if;
  insert into takeback.ddl (op, before, pending) values (program, takeback.snapshot(), true);
  return tag !~ '^(CREATE|COMMENT|GRANT|REVOKE|SELECT INTO)';
end $$;

create function takeback.ddl_losses() returns jsonb
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select takeback.losses(d.before, takeback.snapshot()) from takeback.ddl d
  where d.op = takeback.current_program() and d.pending $$;

create function takeback.ddl_saves(lost jsonb) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $$
  update takeback.ddl d set saved = coalesce((
    select jsonb_agg(takeback.save((l->>0)::bigint, array(select n::int from jsonb_array_elements_text(l->1) n)))
    from jsonb_array_elements(lost) l), '[]')
  where d.op = takeback.current_program() and d.pending
$$;

-- Runs as whoever sent the command, with their search path: what is tried must be what will be done.
create function takeback.schema_begins() returns event_trigger language plpgsql
as $$
declare
  lost pg_catalog.text;
begin
  if takeback.current_program() is null or pg_catalog.current_setting('takeback.busy', true) operator(pg_catalog.=) 'on'
  then return; end if;
  perform pg_catalog.set_config('takeback.busy', 'on', true);
  if takeback.ddl_begins(tg_tag, pg_catalog.current_query()) then
    begin
      execute pg_catalog.current_query();
      raise exception using errcode = 'TB001', detail = takeback.ddl_losses()::pg_catalog.text;
    exception
      when sqlstate 'TB001' then get stacked diagnostics lost = pg_exception_detail;
      when others then lost := null;  -- then it will fail by itself, or be stopped when something is lost
    end;
    if lost is not null then
      perform takeback.ddl_saves(lost::pg_catalog.jsonb);
    end if;
  end if;
  perform pg_catalog.set_config('takeback.busy', 'off', true);
end $$;

-- A table whose triggers of ours are not all there and enabled.
create function takeback.switched_off() returns text
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select k.relation::oid::regclass::text from takeback.captured k join pg_class c on c.oid = k.relation
  where (select count(*) from pg_trigger g where g.tgrelid = k.relation and g.tgname like 'zz\_takeback\__'
    and g.tgenabled = 'A') <> 4 limit 1
$$;

create function takeback.schema_ended() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  program bigint := takeback.current_program();
  kept takeback.ddl;
  now_is jsonb;
  one jsonb;
begin
  if program is null or current_setting('takeback.busy', true) = 'on' then return; end if;
  select * into kept from takeback.ddl d where d.op = program and d.pending;
  if kept.no is null then return; end if;
  if tg_tag ~ '(TABLE|TRIGGER)$' and takeback.switched_off() is not null then
    raise exception 'takeback cannot take back % of a program: what is written to % would not be captured', tg_tag,
      takeback.switched_off()
      using errcode = '0A000', hint = 'Nothing was changed. Leave the triggers zz_takeback_… as they are.';
  end if;
  perform set_config('takeback.busy', 'on', true);
  now_is := takeback.snapshot();
  if tg_tag in ('ALTER SEQUENCE', 'ALTER TABLE') and takeback.set_back(kept.before, now_is) is not null then
    raise exception 'takeback cannot take back % of a program: it sets the sequence % back', tg_tag,
      takeback.set_back(kept.before, now_is)
      using errcode = '0A000', hint = 'Nothing was changed. Do it yourself, outside takeback.';
  end if;
  update takeback.ddl d set before = takeback.differing(kept.before, now_is), after = takeback.differing(now_is, kept.before),
    step = nextval('takeback.step'), pending = false where d.no = kept.no returning * into kept;
  for one in select * from jsonb_array_elements(takeback.losses(kept.before, kept.after)) loop
    if not exists (select from jsonb_array_elements(kept.saved) s where s->'relation' = one->0)
      and not exists (select from takeback.ddl d, jsonb_array_elements(d.after) a where d.op = program and d.no <> kept.no
        and a->>0 = 'relation' and a->1 = one->0
        and not exists (select from jsonb_array_elements(d.before) b where b->>0 = 'relation' and b->1 = one->0))
    then
      raise exception 'takeback cannot take back % of a program: what it loses was not seen before', tg_tag
        using errcode = '0A000', hint = 'Nothing was changed. Send the command by itself, not in a block or a function.';
    end if;
  end loop;
  if not takeback.keeper() and kept.before || kept.after <> '[]' then
    raise exception 'takeback cannot take back % of a program with the role %', tg_tag, session_user
      using errcode = '0A000', hint = 'Nothing was changed. Let it use the role that protected the database.';
  end if;
  if kept.before = '[]' and kept.after = '[]' then
    delete from takeback.ddl d where d.no = kept.no;
  else
    update takeback.ddl d set saved = takeback.left_behind(kept.saved) || takeback.added(kept.before, kept.after)
    where d.no = kept.no;
    perform takeback.recapture(relation) from (
      select distinct (o->>1)::bigint as relation from jsonb_array_elements(kept.before || kept.after) o
      where o->>0 = 'column') columns;
  end if;
  perform set_config('takeback.busy', 'off', true);
end $$;

-- A sequence that was restarted: what it counts is no part of its definition.
create function takeback.set_back(before jsonb, after jsonb) returns text
language sql stable set search_path = pg_catalog, pg_temp
as $$
  select format('%I.%I', b.o->3->>'schema', b.o->3->>'name')
  from jsonb_array_elements(before) b(o) join jsonb_array_elements(after) a(o) on a.o->0 = b.o->0 and a.o->1 = b.o->1
  where b.o->>0 = 'relation' and b.o->3 ? '_last' and (not a.o->3 ? '_last' or
    ((a.o->3->>'_last')::numeric - (b.o->3->>'_last')::numeric) * (b.o->3->'sequence'->>'increment')::numeric < 0)
  limit 1
$$;

-- Images of rows, and tables that were put aside, are of types that anybody may drop with all that hangs on them.
create function takeback.schema_drops() returns event_trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  one record;
  used boolean;
begin
  for one in
    select distinct o.objid, o.objid::regclass as home from pg_event_trigger_dropped_objects() o
    where o.object_type = 'table column' and o.schema_name ~ '^takeback(_[0-9_]+)?$'
      and exists (select from pg_class c where c.oid = o.objid)
  loop
    execute format('select exists (select from %s)', one.home) into used;
    if used then
      raise exception 'rows that takeback keeps in % would lose a column', one.home using errcode = '2BP01',
        hint = 'Nothing was changed. An undo needs these rows. Leave the type, or give up the effects on its tables first (takeback forget).';
    end if;
  end loop;
end $$;

-- A table whose columns came, went or changed: from now on images are taken as it is now. The functions are as they were but
-- for the columns.
create function takeback.recapture(relation bigint) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  known takeback.captured;
  its_log takeback.log;
  its_shape jsonb;
  one record;
  places text[];
  parked text;
  body text;
  event text;
  from_now bigint;
begin
  select * into known from takeback.captured k where k.relation = recapture.relation;
  if known.relation is null or not exists (select from pg_class c where c.oid = recapture.relation) then return; end if;
  select coalesce(jsonb_agg(jsonb_build_array(a.attnum::int, a.atttypid::int8, a.atttypmod, a.attcollation::int8, a.attname)
    order by a.attnum), '[]') into its_shape
  from pg_attribute a where a.attrelid = recapture.relation and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v';
  if its_shape = known.shape then return; end if;
  select * into its_log from takeback.log l where l.no = known.log;
  if its_log.relation <> recapture.relation or known.by_row
    or exists (select from pg_class c where c.oid = recapture.relation and c.relkind = 'p') then
    raise exception 'takeback cannot follow a program that changes columns of partitions (%)', relation::oid::regclass
      using errcode = '0A000', hint = 'Nothing was changed. Do it through run.sql.';
  end if;
  from_now := nextval('takeback.step');
  for one in
    select (n->>0)::int as number, n->1 as type, n->2 as modifier, n->3 as collation, o as old from jsonb_array_elements(its_shape) n
    left join jsonb_array_elements(its_log.shape) o on o->0 = n->0
    where o is null or (o - 4) <> (n - 4)
  loop
    if one.old is not null then
      execute format('alter table takeback.log_%s rename column c%s to c%s_%s_%s_%s', its_log.no, one.number, one.number,
        one.old->1, (one.old->>2)::int + 1, one.old->3);
    end if;
    parked := format('c%s_%s_%s_%s', one.number, one.type, (one.modifier::text)::int + 1, one.collation);
    if exists (select from pg_attribute a where a.attrelid = format('takeback.log_%s', its_log.no)::regclass and a.attname = parked
      and not a.attisdropped) then
      execute format('alter table takeback.log_%s rename column %s to c%s', its_log.no, parked, one.number);
    else
      execute format('alter table takeback.log_%s add column c%s %s%s', its_log.no, one.number,
        format_type((one.type::text)::oid, (one.modifier::text)::int),
        (select format(' collate %I.%I', n.nspname, c.collname) from pg_collation c join pg_namespace n on n.oid = c.collnamespace
         join pg_type t on t.oid = (one.type::text)::oid where c.oid = (one.collation::text)::oid and t.typcollation <> c.oid));
    end if;
  end loop;
  places := array(select 'c' || (n->>0) from jsonb_array_elements(its_shape) with ordinality u(n, p) order by p);
  foreach event in array array['i', 'u', 'd', 't'] loop
    select p.prosrc into body from pg_proc p
    where p.proname = format('capture_%s_%s', relation, event) and p.pronamespace = 'takeback'::regnamespace;
    body := regexp_replace(body, '\(op, step, sign((, wide)?)[^)]*\)', '(op, step, sign\1' || (
      select string_agg(', ' || p, '' order by n) from unnest(places) with ordinality u(p, n)) || ')', 'g');
    body := regexp_replace(body, '(, r\.f[0-9]+)+', (
      select string_agg(', r.f' || (n - 1), '' order by n) from unnest(places) with ordinality u(p, n)), 'g');
    body := regexp_replace(body, ' as r\([^)]*\)', ' as r(' || (
      select string_agg('f' || (n - 1), ', ' order by n) from unnest(places) with ordinality u(p, n)) || ')', 'g');
    execute format('create or replace function takeback.capture_%s_%s() returns trigger language plpgsql security definer '
      'set search_path = pg_catalog, pg_temp as %L', relation, event, body);
  end loop;
  update takeback.log l set shape = its_shape, since = from_now, name = recapture.relation::oid::regclass::text
  where l.no = its_log.no;
  update takeback.captured k set shape = its_shape where k.relation = recapture.relation;
  insert into takeback.form values (its_log.no, from_now, its_shape);
end $$;
