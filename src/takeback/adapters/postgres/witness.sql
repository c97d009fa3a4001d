-- What the server can tell of things that no trigger sees: asked when a program begins and when it has ended.
alter table takeback.op add column if not exists witness jsonb;

-- Rows written to each log's tables as the server counts them, by whomever: [inserted or updated, updated or deleted].
create function takeback.written() returns jsonb
language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$
  select coalesce(jsonb_object_agg(log, jsonb_build_array(plus, minus)), '{}') from (
    select k.log, sum(pg_stat_get_tuples_inserted(k.relation) + pg_stat_get_tuples_updated(k.relation)) as plus,
      sum(pg_stat_get_tuples_updated(k.relation) + pg_stat_get_tuples_deleted(k.relation)) as minus
    from takeback.captured k group by k.log) counts
$$;

-- Roles, databases, tablespaces and the settings of the server belong to no database, and no event tells of them.
create function takeback.shared_objects() returns table (kind text, name text, doc text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
  return query select 'role', r.rolname::text, md5(concat_ws('/', to_jsonb(r) - 'rolpassword',
    (select jsonb_agg(to_jsonb(m) - 'oid' order by m.roleid, m.grantor) from pg_auth_members m where m.member = r.oid),
    (select jsonb_agg(to_jsonb(s) order by s.setdatabase) from pg_db_role_setting s where s.setrole = r.oid)))
  from pg_roles r;
  return query select 'database', d.datname::text,
    md5((to_jsonb(d) - array['datfrozenxid', 'datminmxid', 'datcollversion'])::text)
  from pg_database d;
  return query select 'tablespace', t.spcname::text, md5(to_jsonb(t)::text) from pg_tablespace t;
  if has_function_privilege('pg_read_file(text, bigint, bigint, boolean)', 'execute')
    and pg_has_role('pg_read_server_files', 'usage') then
    return query select 'server settings', 'postgresql.auto.conf',
      md5(pg_read_file(current_setting('data_directory') || '/postgresql.auto.conf', 0, 10000000, true));
  end if;
end $$;

create function takeback.witness() returns jsonb
language sql volatile security definer set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object(
    'written', takeback.written(),
    'large objects', (select sum(pg_stat_get_tuples_inserted(o) + pg_stat_get_tuples_updated(o) + pg_stat_get_tuples_deleted(o))
      from unnest(array['pg_largeobject'::regclass, 'pg_largeobject_metadata'::regclass]) o),
    'shared', (select coalesce(jsonb_object_agg(s.kind || ' ' || s.name, s.doc), '{}') from takeback.shared_objects() s),
    'sequences', (select coalesce(jsonb_object_agg(c.oid::int8, jsonb_build_array(pg_sequence_last_value(s.seqrelid), s.seqincrement)), '{}')
      from pg_sequence s join pg_class c on c.oid = s.seqrelid join pg_namespace n on n.oid = c.relnamespace
      where c.relpersistence = 'p' and n.nspname !~ '^takeback(_[0-9_]+)?$'
        and (has_sequence_privilege(s.seqrelid, 'usage') or has_sequence_privilege(s.seqrelid, 'select'))))
$$;

create function takeback.begin_watch(op bigint) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $$
  update takeback.op o set witness = takeback.witness()
  where o.no = begin_watch.op and o.role = session_user and o.logs is null and not o.closed
$$;

-- Sequences that were set back while the program ran, each as it was: undo sets it forward again.
create function takeback.counted_back(op bigint) returns table (sequence text, was bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  now_is jsonb := takeback.witness()->'sequences';
  one record;
begin
  for one in
    select k.key::oid as oid, (k.value->>0)::bigint as was from takeback.op o, jsonb_each(o.witness->'sequences') k
    where o.no = counted_back.op and (o.role = session_user or takeback.keeper()) and k.value->>0 is not null and now_is ? k.key
      and (now_is->k.key->>0 is null or ((now_is->k.key->>0)::numeric - (k.value->>0)::numeric) * (k.value->>1)::numeric < 0)
  loop
    insert into takeback.counter select counted_back.op, one.oid, one.was, true
    where not exists (select from takeback.counter c where c.op = counted_back.op and c.sequence = one.oid);
    counted_back.sequence := one.oid::regclass::text;
    counted_back.was := one.was;
    return next;
  end loop;
end $$;
