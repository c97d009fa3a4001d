-- What the schema is, object by object, as it must be written to have it again. What begins with `_` tells where an object
-- is, and is not compared: numbers change when something is made again.

create function takeback.rights(acl aclitem[]) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp
as $$
  select coalesce(jsonb_agg(line order by line), '[]') from (
    select distinct concat_ws(' ', case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end,
      a.privilege_type, case when a.is_grantable then '*' end) as line
    from aclexplode(acl) a
  ) lines
$$;

-- In any order, and without those that the server keeps for itself: PostgreSQL 15.20 counts changes of a column in pg_attver.
create function takeback.options(given text[]) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp
as $$ select jsonb_agg(o order by o) from unnest(given) o where not starts_with(o, 'pg_') $$;

-- In PL/pgSQL, so that a session plans this only once; compiling it would take longer than running it.
create function takeback.objects() returns table (kind text, oid bigint, part int, doc jsonb)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set jit = off
as $$
#variable_conflict use_column
begin return query
with ns as materialized (
  select n.oid, n.nspname, n.nspowner, n.nspacl from pg_namespace n
  where n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast', 'takeback')
    and n.nspname !~ '^(pg_temp_|pg_toast_temp_|takeback_[0-9_]+$)'
), member as materialized (
  select d.classid, d.objid from pg_depend d where d.deptype = 'e'
), rel as materialized (
  select c.*, ns.nspname from pg_class c join ns on ns.oid = c.relnamespace
  where c.relkind in ('r', 'p', 'v', 'm', 'S', 'f') and c.relpersistence <> 't'
    and not exists (select from member e where e.classid = 'pg_class'::regclass and e.objid = c.oid)
)
select 'schema', n.oid::int8, 0, jsonb_build_object('name', n.nspname, 'owner', pg_get_userbyid(n.nspowner),
  'rights', takeback.rights(coalesce(n.nspacl, acldefault('n', n.nspowner))), 'comment', obj_description(n.oid, 'pg_namespace'))
from ns n
union all
select 'relation', c.oid::int8, 0, jsonb_strip_nulls(jsonb_build_object(
  '_kind', c.relkind, 'schema', c.nspname, 'name', c.relname, 'owner', pg_get_userbyid(c.relowner),
  'rights', takeback.rights(coalesce(c.relacl,
    acldefault(case when c.relkind = 'S' then 's' else 'r' end::"char", c.relowner))),
  'comment', obj_description(c.oid, 'pg_class'), 'persistence', c.relpersistence, 'options', takeback.options(c.reloptions),
  'security', c.relrowsecurity, 'forced', c.relforcerowsecurity, 'identity', c.relreplident,
  'tablespace', (select spcname from pg_tablespace s where s.oid = c.reltablespace),
  'method', (select amname from pg_am a where a.oid = c.relam),
  'partition by', case when c.relkind = 'p' then pg_get_partkeydef(c.oid) end,
  'bound', pg_get_expr(c.relpartbound, c.oid),
  'parents', (select jsonb_agg(format('%I.%I', pn.nspname, pc.relname) order by i.inhseqno)
    from pg_inherits i join pg_class pc on pc.oid = i.inhparent join pg_namespace pn on pn.oid = pc.relnamespace
    where i.inhrelid = c.oid),
  '_parents', (select jsonb_agg(i.inhparent::int8 order by i.inhseqno) from pg_inherits i where i.inhrelid = c.oid),
  'of', case when c.reloftype <> 0 then format_type(c.reloftype, null) end,
  'definition', case when c.relkind in ('v', 'm') then pg_get_viewdef(c.oid) end,
  'populated', case when c.relkind = 'm' then c.relispopulated end,
  'sequence', (select jsonb_build_object('type', format_type(s.seqtypid, null), 'start', s.seqstart,
    'increment', s.seqincrement, 'min', s.seqmin, 'max', s.seqmax, 'cache', s.seqcache, 'cycle', s.seqcycle)
    from pg_sequence s where s.seqrelid = c.oid),
  '_last', case when c.relkind = 'S' then pg_sequence_last_value(c.oid) end,
  'owned by', (select format('%s.%I %s', d.refobjid::regclass, a.attname, d.deptype) from pg_depend d
    join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
    where c.relkind = 'S' and d.classid = 'pg_class'::regclass and d.objid = c.oid and d.objsubid = 0
      and d.refclassid = 'pg_class'::regclass and d.deptype in ('a', 'i') limit 1),
  '_owned', (select jsonb_build_array(d.refobjid::int8, d.refobjsubid, d.deptype) from pg_depend d
    where c.relkind = 'S' and d.classid = 'pg_class'::regclass and d.objid = c.oid and d.objsubid = 0
      and d.refclassid = 'pg_class'::regclass and d.deptype in ('a', 'i') limit 1)))
from rel c
union all
select 'column', a.attrelid::int8, a.attnum::int, jsonb_strip_nulls(jsonb_build_object(
  '_of', c.relkind, 'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
  '_type', a.atttypid::int8, '_modifier', a.atttypmod,
  'collation', case when a.attcollation <> t.typcollation then
    (select format('%I.%I', n.nspname, o.collname) from pg_collation o join pg_namespace n on n.oid = o.collnamespace
     where o.oid = a.attcollation) end,
  'not null', a.attnotnull, 'default', pg_get_expr(d.adbin, d.adrelid), 'identity', nullif(a.attidentity, ''),
  'generated', nullif(a.attgenerated, ''), 'storage', case when a.attstorage <> t.typstorage then a.attstorage end,
  'compression', nullif(a.attcompression, ''), 'statistics', nullif(a.attstattarget, -1),
  'options', takeback.options(a.attoptions),
  'rights', nullif(takeback.rights(a.attacl), '[]'), 'comment', col_description(a.attrelid, a.attnum),
  'inherited', nullif(a.attinhcount > 0, false), 'local', nullif(a.attislocal, true)))
from rel c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
join pg_type t on t.oid = a.atttypid
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where c.relkind <> 'S'
union all
select 'constraint', k.oid::int8, 0, jsonb_strip_nulls(jsonb_build_object(
  '_relation', k.conrelid::int8, '_domain', k.contypid::int8, '_target', k.confrelid::int8, '_kind', k.contype,
  'name', k.conname, 'definition', pg_get_constraintdef(k.oid),
  'comment', obj_description(k.oid, 'pg_constraint'), 'inherited', nullif(k.conparentid <> 0 or not k.conislocal, false)))
from pg_constraint k join ns on ns.oid = k.connamespace
where k.contype in ('c', 'f', 'p', 'u', 'x') and (k.conrelid in (select r.oid from rel r) or k.contypid <> 0)
union all
select 'index', i.indexrelid::int8, 0, jsonb_strip_nulls(jsonb_build_object(
  '_relation', i.indrelid::int8, 'name', x.relname, 'definition', pg_get_indexdef(i.indexrelid),
  'comment', obj_description(i.indexrelid, 'pg_class'), 'clustered', nullif(i.indisclustered, false),
  'identity', nullif(i.indisreplident, false), 'invalid', nullif(not i.indisvalid, false),
  'tablespace', (select spcname from pg_tablespace s where s.oid = x.reltablespace),
  'inherited', nullif(x.relispartition, false),
  '_constraint', (select k.oid::int8 from pg_constraint k where k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x') limit 1)))
from pg_index i join rel c on c.oid = i.indrelid join pg_class x on x.oid = i.indexrelid
union all
select 'trigger', g.oid::int8, 0, jsonb_strip_nulls(jsonb_build_object(
  '_relation', g.tgrelid::int8, 'name', g.tgname, 'definition', pg_get_triggerdef(g.oid), 'enabled', g.tgenabled,
  'comment', obj_description(g.oid, 'pg_trigger'), 'inherited', nullif(g.tgparentid <> 0, false)))
from pg_trigger g join rel c on c.oid = g.tgrelid
where not g.tgisinternal and g.tgname not like 'zz\_takeback\__'
union all
select 'rule', w.oid::int8, 0, jsonb_strip_nulls(jsonb_build_object(
  '_relation', w.ev_class::int8, 'name', w.rulename, 'definition', pg_get_ruledef(w.oid), 'enabled', w.ev_enabled,
  'comment', obj_description(w.oid, 'pg_rewrite')))
from pg_rewrite w join rel c on c.oid = w.ev_class where w.rulename <> '_RETURN'
union all
select 'policy', p.oid::int8, 0, jsonb_strip_nulls(jsonb_build_object(
  '_relation', p.polrelid::int8, 'name', p.polname, 'permissive', p.polpermissive, 'command', p.polcmd,
  'roles', (select jsonb_agg(case r when 0 then 'public' else quote_ident(pg_get_userbyid(r)) end order by r)
    from unnest(p.polroles) r),
  'using', pg_get_expr(p.polqual, p.polrelid), 'check', pg_get_expr(p.polwithcheck, p.polrelid),
  'comment', obj_description(p.oid, 'pg_policy')))
from pg_policy p join rel c on c.oid = p.polrelid
union all
select 'function', p.oid::int8, 0, jsonb_strip_nulls(jsonb_build_object(
  '_kind', p.prokind, 'schema', ns.nspname, 'name', p.proname, 'arguments', pg_get_function_identity_arguments(p.oid),
  'definition', case when p.prokind in ('f', 'p', 'w') then pg_get_functiondef(p.oid) end,
  'owner', pg_get_userbyid(p.proowner), 'rights', takeback.rights(coalesce(p.proacl, acldefault('f', p.proowner))),
  'comment', obj_description(p.oid, 'pg_proc')))
from pg_proc p join ns on ns.oid = p.pronamespace
where not exists (select from member e where e.classid = 'pg_proc'::regclass and e.objid = p.oid)
  and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'i')
union all
select 'type', t.oid::int8, 0, jsonb_strip_nulls(jsonb_build_object(
  '_kind', t.typtype, 'schema', ns.nspname, 'name', t.typname, 'owner', pg_get_userbyid(t.typowner),
  'rights', takeback.rights(coalesce(t.typacl, acldefault('T', t.typowner))), 'comment', obj_description(t.oid, 'pg_type'),
  'labels', (select jsonb_agg(e.enumlabel order by e.enumsortorder) from pg_enum e where e.enumtypid = t.oid),
  'base', case when t.typtype = 'd' then format_type(t.typbasetype, t.typtypmod) end,
  'not null', case when t.typtype = 'd' then t.typnotnull end, 'default', case when t.typtype = 'd' then t.typdefault end,
  'collation', case when t.typtype = 'd' and t.typcollation <> (select b.typcollation from pg_type b where b.oid = t.typbasetype)
    then (select format('%I.%I', n.nspname, o.collname) from pg_collation o join pg_namespace n on n.oid = o.collnamespace
          where o.oid = t.typcollation) end,
  'attributes', case when t.typtype = 'c' then (select jsonb_agg(jsonb_build_array(a.attname, format_type(a.atttypid, a.atttypmod))
    order by a.attnum) from pg_attribute a where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped) end,
  'subtype', (select format_type(r.rngsubtype, null) from pg_range r where r.rngtypid = t.oid)))
from pg_type t join ns on ns.oid = t.typnamespace
where (t.typtype in ('e', 'd', 'r') or t.typtype = 'c' and exists (
    select from pg_class k where k.oid = t.typrelid and k.relkind = 'c'))
  and not exists (select from member e where e.classid = 'pg_type'::regclass and e.objid = t.oid)
union all
select 'statistics', s.oid::int8, 0, jsonb_strip_nulls(jsonb_build_object(
  '_relation', s.stxrelid::int8, 'schema', ns.nspname, 'name', s.stxname, 'definition', pg_get_statisticsobjdef(s.oid),
  'owner', pg_get_userbyid(s.stxowner), 'comment', obj_description(s.oid, 'pg_statistic_ext')))
from pg_statistic_ext s join ns on ns.oid = s.stxnamespace;
end $$;

-- The same without what is not compared.
create function takeback.core(doc jsonb) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp
as $$ select coalesce(jsonb_object_agg(key, value), '{}') from jsonb_each(doc) where key not like '\_%' $$;

create function takeback.snapshot() returns jsonb
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select coalesce(jsonb_agg(jsonb_build_array(o.kind, o.oid, o.part, o.doc)), '[]') from takeback.objects() o $$;

-- What differs between two of them, on the first side.
create function takeback.differing(one jsonb, other jsonb) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp
as $$
  select coalesce(jsonb_agg(a.o order by a.n), '[]') from jsonb_array_elements(one) with ordinality a(o, n)
  left join jsonb_array_elements(other) b(o)
    on b.o->0 = a.o->0 and b.o->1 = a.o->1 and b.o->2 = a.o->2
  where b.o is null or takeback.core(a.o->3) <> takeback.core(b.o->3)
$$;

-- Schema changes of effects, in order. Undo goes through them from the last to the first, and through the rows that were
-- written between them.
create table takeback.ddl (
  no      bigint generated always as identity primary key,
  op      bigint not null,
  step    bigint not null default nextval('takeback.step'),
  before  jsonb not null,              -- [kind, oid, part, document] of all that was dropped or altered
  after   jsonb not null default '[]', -- and of all that was made or altered
  saved   jsonb not null default '[]'  -- where rows are that were lost on the way
);
create index on takeback.ddl (op);

-- Something that was dropped and made again has another number.
create table takeback.again (
  kind      text not null,
  oid       bigint not null,
  part      int not null,
  new_oid   bigint not null,
  new_part  int not null
);
create index on takeback.again (kind, oid, part);

create sequence takeback.saved;

-- Which columns of which tables lose what is in them on the way from one state to the other: [relation, [columns]].
create function takeback.losses(before jsonb, after jsonb) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp
as $$
  select coalesce(jsonb_agg(jsonb_build_array(relation, columns) order by relation), '[]') from (
    select b.o->1 as relation, jsonb_agg(b.o->2 order by b.o->2) as columns
    from jsonb_array_elements(before) b(o)
    left join jsonb_array_elements(after) a(o) on a.o->0 = b.o->0 and a.o->1 = b.o->1 and a.o->2 = b.o->2
    where b.o->>0 = 'column' and b.o->3->>'_of' in ('r', 'p') and coalesce(b.o->3->>'generated', '') <> 'v'
      and (a.o is null or a.o->3->'_type' <> b.o->3->'_type' or a.o->3->'_modifier' <> b.o->3->'_modifier'
        or a.o->3->'collation' is distinct from b.o->3->'collation')
      -- A partitioned table that goes takes its partitions along, and has no rows but theirs.
      and not (b.o->3->>'_of' = 'p'
        and exists (select from jsonb_array_elements(before) r(o) where r.o->>0 = 'relation' and r.o->1 = b.o->1)
        and not exists (select from jsonb_array_elements(after) r(o) where r.o->>0 = 'relation' and r.o->1 = b.o->1))
    group by 1
  ) lost
$$;

-- Keep what is about to be lost, by the key of its row; whole rows where there is none that stays.
create function takeback.save(relation bigint, lost int[]) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  n bigint := nextval('takeback.saved');
  key int[];
  kept int[];
  whole boolean;
  source text := (select format('%s%I.%I', case when c.relkind = 'p' then '' else 'only ' end, s.nspname, c.relname)
    from pg_class c join pg_namespace s on s.oid = c.relnamespace where c.oid = relation);
  columns int[] := (select array_agg(a.attnum::int order by a.attnum) from pg_attribute a
    where a.attrelid = relation and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v');
begin
  select array(select k::int from unnest(i.indkey::int2[]) with ordinality u(k, p) where p <= i.indnkeyatts) into key
  from pg_index i
  where i.indrelid = relation and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
    and not exists (select from unnest(i.indkey::int2[]) with ordinality u(k, p)
      left join pg_attribute a on a.attrelid = relation and a.attnum = u.k
      where p <= i.indnkeyatts and (not coalesce(a.attnotnull, false) or a.attnum::int = any (lost)))
  order by i.indisprimary desc, i.indnkeyatts limit 1;
  whole := key is null;
  kept := case when whole then columns else (select array_agg(k order by k) from (
    select unnest(key) union select unnest(lost)) u(k) where k = any (columns)) end;
  execute format('create table takeback.saved_%s as select row_number() over () as place%s from %s as t', n,
    (select coalesce(string_agg(format(', t.%I as c%s', a.attname, a.attnum), '' order by a.attnum), '')
     from pg_attribute a where a.attrelid = relation and a.attnum::int = any (kept)), source);
  return jsonb_build_object('no', n, 'relation', relation, 'key', coalesce(to_jsonb(key), '[]'), 'lost', to_jsonb(lost),
    'kept', to_jsonb(kept), 'whole', whole);
end $$;

-- A mark of all rows of a table, whatever their order.
create function takeback.content(relation bigint) returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
declare found text;
begin
  execute format('select count(*) || ''/'' || coalesce(sum(hashtextextended(takeback_row::text, 0)::numeric), 0) from %s takeback_row',
    relation::oid::regclass) into found;
  return found;
end $$;

-- What the change made of what was saved: the values in columns that have another type now, and a mark of tables
-- without a key. By this it is known later whether someone else wrote there.
create function takeback.left_behind(saved jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  one jsonb;
  found jsonb := '[]';
  source text;
  retyped int[];
begin
  for one in select * from jsonb_array_elements(saved) loop
    source := (select format('%s%I.%I', case when c.relkind = 'p' then '' else 'only ' end, s.nspname, c.relname)
      from pg_class c join pg_namespace s on s.oid = c.relnamespace where c.oid = (one->>'relation')::oid);
    if source is not null then
      retyped := array(select a.attnum::int from pg_attribute a where a.attrelid = (one->>'relation')::oid
        and not a.attisdropped and one->'lost' @> to_jsonb(a.attnum::int));
      one := one || jsonb_build_object('retyped', to_jsonb(retyped));
      if (one->>'whole')::boolean then
        one := one || jsonb_build_object('content', takeback.content((one->>'relation')::bigint));
      elsif cardinality(retyped) > 0 then
        execute format('create table takeback.left_%s as select %s from %s as t', one->>'no',
          (select string_agg(format('t.%I as c%s', a.attname, a.attnum), ', ') from pg_attribute a
           where a.attrelid = (one->>'relation')::oid
             and (a.attnum::int = any (retyped) or one->'key' @> to_jsonb(a.attnum::int))), source);
      end if;
    end if;
    found := found || jsonb_build_array(one);
  end loop;
  return found;
end $$;

-- What is in columns that were just added: one value everywhere, or a copy by key. By this it is known later whether someone
-- else wrote there.
create function takeback.added(before jsonb, after jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
  one record;
  home text;
  value text;
  varied boolean;
  empty boolean;
  expression text;
  info jsonb;
  found jsonb := '[]';
begin
  for one in
    select (a.o->>1)::bigint as relation, (a.o->>2)::int as number, a.o->3 as doc from jsonb_array_elements(after) a(o)
    where a.o->>0 = 'column' and a.o->3->>'_of' in ('r', 'p') and not a.o->3 ? 'generated'
      and not exists (select from jsonb_array_elements(before) b(o)
        where b.o->>0 = 'column' and b.o->1 = a.o->1 and b.o->2 = a.o->2)
      and not exists (select from jsonb_array_elements(after) k(o)
        where k.o->>0 = 'relation' and k.o->1 = a.o->1 and not exists (
          select from jsonb_array_elements(before) b(o) where b.o->>0 = 'relation' and b.o->1 = a.o->1))
  loop
    home := one.relation::oid::regclass::text;
    execute format('select %I::text, false from %s limit 1', one.doc->>'name', home) into value, empty;
    if empty is null then
      expression := one.doc->>'default';
      value := null;
      if expression is not null then
        info := jsonb_build_object('any', true);
      else
        info := jsonb_build_object('value', null);
      end if;
    else
      execute format('select exists (select from %s where %I::text is distinct from $1)', home, one.doc->>'name')
        into varied using value;
      if varied then
        info := jsonb_build_object('saved', takeback.save(one.relation, array[one.number])
          || jsonb_build_object('content', takeback.content(one.relation)));
      else
        info := jsonb_build_object('value', value);
      end if;
    end if;
    found := found || jsonb_build_array(jsonb_build_object('relation', one.relation, 'whole', false, 'lost', '[]'::jsonb,
      'added', jsonb_build_object(one.number::text, info)));
    empty := null;
  end loop;
  return found;
end $$;

create function takeback.filled(relation bigint, number int, place int, info jsonb) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
declare
  found boolean := false;
  name text := (select a.attname from pg_attribute a where a.attrelid = relation and a.attnum = number);
  home text := relation::oid::regclass::text;
  saved jsonb := info->'saved';
begin
  if info ? 'any' then
    return false;
  elsif saved is null then
    execute format('select exists (select from %s where %I::text is distinct from $1)', home, name)
      into found using info->>'value';
  elsif (saved->>'whole')::boolean then
    return takeback.content(relation) <> saved->>'content';
  else
    execute format('select exists (select from %s t join takeback.saved_%s s on %s where not record_image_eq(row(t.%I), row(s.c%s)))',
      home, saved->>'no', (select string_agg(format('t.%I = s.c%s', a.attname, a.attnum), ' and ') from pg_attribute a
        where a.attrelid = relation and saved->'key' @> to_jsonb(a.attnum::int)), name, place) into found;
  end if;
  return found;
end $$;
