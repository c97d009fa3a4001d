-- A role that may write and owns nothing of this. It sees its own effects, and begins and ends those of its programs; nothing
-- here lets it see, change or erase what is of others.

create function takeback.own(op bigint) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$ select exists (select from takeback.op o where o.no = own.op and o.role = session_user) $$;

-- Images have all columns of a row: they are shown to those only who may read all of them in the table.
create function takeback.readable(log int) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
as $$
  select exists (select from takeback.log l join pg_class c on c.oid = l.relation
    where l.no = readable.log and not c.relrowsecurity and has_table_privilege(session_user, l.relation, 'select'))
$$;

alter table takeback.op enable row level security;
create policy own on takeback.op for select using (role = session_user);
grant select on takeback.op, takeback.wide to public;
alter table takeback.ddl enable row level security;
create policy own on takeback.ddl for select using (takeback.own(op));
alter table takeback.counter enable row level security;
create policy own on takeback.counter for select using (takeback.own(op));
grant select on takeback.ddl, takeback.counter to public;

create function takeback.begin_program(op bigint) returns void
language sql security definer set search_path = pg_catalog, pg_temp
as $$
  update takeback.op o set shape = takeback.snapshot()
  where o.no = begin_program.op and o.role = session_user and o.logs is null and not o.closed
$$;

-- How many images there are in which log, before and after.
create function takeback.images(op bigint) returns table (log int, name text, minus bigint, plus bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
as $$
begin
  if not takeback.own(images.op) then return; end if;
  for images.log, images.name in select l.no, l.name from takeback.log l order by l.no loop
    execute format('select count(*) filter (where sign < 0), count(*) filter (where sign > 0) from takeback.log_%s where op = $1',
      images.log) into images.minus, images.plus using images.op;
    if images.minus + images.plus > 0 then return next; end if;
  end loop;
end $$;

-- The end of a program; nobody can add to it any more. With nothing told, and nothing changed, it never was.
create function takeback.end_program(op bigint, told jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare its_logs int[] := array(select i.log from takeback.images(end_program.op) i);
begin
  if end_program.told is null and cardinality(its_logs) = 0 then
    delete from takeback.op o where o.no = end_program.op and o.role = session_user and o.logs is null and not o.closed;
  else
    update takeback.op o set logs = its_logs, told = end_program.told, moves = '[]', closed = true, shape = null
    where o.no = end_program.op and o.role = session_user and o.logs is null and not o.closed;
  end if;
end $$;
