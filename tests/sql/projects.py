"""Projects with a real migration tool: what lies in their directories, and how the tool is called there."""

import os
import sys
from pathlib import Path

_FIRST = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "001", None


def upgrade():
    op.create_table("users", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(40)))
    op.bulk_insert(sa.table("users", sa.column("id"), sa.column("name")), [
        {"id": number, "name": f"First{number} Last{number}"} for number in range(1, 101)])
    op.create_index("by_name", "users", ["name"])
"""


def alembic_project(place: Path, ini: str, env: str, second: str, more: str = "") -> list[str]:
    """`more` is one more line of the first migration."""
    versions = place / "migrations" / "versions"
    versions.mkdir(parents=True)
    (place / "alembic.ini").write_text(f"[alembic]\nscript_location = {place}/migrations\n{ini}")
    (place / "migrations" / "env.py").write_text(env)
    (place / "migrations" / "script.py.mako").write_text("")
    (versions / "first.py").write_text(_FIRST + more)
    (versions / "second.py").write_text(second)
    return [sys.executable, "-m", "alembic", "-c", os.fspath(place / "alembic.ini")]


_SETTINGS = """
SECRET_KEY = "x"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""
_MODELS = """
from django.db import models


class Order(models.Model):
    title = models.CharField(max_length=40)
    total = models.IntegerField(default=0)
"""
_SHOP_1 = """
from django.db import migrations, models


def fill(apps, schema_editor):
    Order = apps.get_model("shop", "Order")
    Order.objects.bulk_create(Order(title=f"order {number}") for number in range(50))


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Order", [
            ("id", models.BigAutoField(primary_key=True)), ("title", models.CharField(max_length=40))]),
        migrations.RunPython(fill),
    ]
"""
_SHOP_2 = """
from django.db import migrations, models


def count(apps, schema_editor):
    apps.get_model("shop", "Order").objects.update(total=models.F("id") * 10)


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_first")]
    operations = [
        migrations.AddField("Order", "total", models.IntegerField(default=0)),
        migrations.RunPython(count),
        migrations.AlterField("Order", "title", models.CharField(max_length=80, db_index=True)),
        migrations.RunSQL("DELETE FROM shop_order WHERE id > 40"),
        MORE
    ]
"""


def django_project(place: Path, databases: str, more: str = "") -> list[str]:
    """`databases` are lines of the settings, `more` are further operations of the second migration."""
    migrations = place / "shop" / "migrations"
    migrations.mkdir(parents=True)
    for where in (place / "shop", migrations):
        (where / "__init__.py").write_text("")
    (place / "settings.py").write_text(_SETTINGS + databases)
    (place / "shop" / "models.py").write_text(_MODELS)
    (migrations / "0001_first.py").write_text(_SHOP_1)
    (migrations / "0002_total.py").write_text(_SHOP_2.replace("MORE", more))
    (place / "manage.py").write_text(
        f"import os, sys\nsys.path.insert(0, {os.fspath(place)!r})\n"
        "os.environ['DJANGO_SETTINGS_MODULE'] = 'settings'\n"
        "from django.core.management import execute_from_command_line\nexecute_from_command_line(sys.argv)\n"
    )
    return [sys.executable, os.fspath(place / "manage.py")]
