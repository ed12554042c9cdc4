"""Writes the first migration of the hub's tables anew from tables.py. Only until its release: later ones are stacked.

.venv/bin/python scripts/initial_migration.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from alembic.autogenerate import produce_migrations, render_python_code
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine

from databazaar.service.database.tables import Table

TARGET = Path("src/databazaar/service/database/migrations/versions/initial.py")
HEAD = '''"""All tables of a hub, as scripts/initial_migration.py writes them from tables.py."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from databazaar.service.database.migrations.append_only import keep, let_go

revision = "0001"
down_revision = None


def upgrade() -> None:
    {upgrades}
    keep("journal_entries", "journal_postings")
    head = sa.text("INSERT INTO journal_head (id, seq, hash) VALUES (1, -1, :genesis)")
    op.execute(head.bindparams(genesis="0" * 64))
    op.execute("INSERT INTO accounts (name, balance) VALUES ('outside', 0), ('fees', 0)")


def downgrade() -> None:
    let_go("journal_entries", "journal_postings")
    {downgrades}
'''


def main() -> None:
    with create_engine("sqlite://").connect() as connection:
        operations = produce_migrations(MigrationContext.configure(connection), Table.metadata)
    code = []
    for half in (operations.upgrade_ops, operations.downgrade_ops):
        assert half is not None
        rendered = render_python_code(half, user_module_prefix="")
        code.append(rendered.replace("Moment(", "sa.DateTime("))
    text = HEAD.format(upgrades=code[0], downgrades=code[1])
    TARGET.write_text("\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")))
    for command in ("check --fix --quiet", "format --quiet"):
        subprocess.run([str(Path(sys.executable).with_name("ruff")), *command.split(), str(TARGET)], check=True)  # noqa: S603


if __name__ == "__main__":
    main()
