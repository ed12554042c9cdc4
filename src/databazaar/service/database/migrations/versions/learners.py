"""Offers say which learners they allow. Those from before allow what there was: updates, and no training on rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
OFFERS = sa.table("offers", sa.column("id", sa.String), sa.column("policy", sa.JSON))


def upgrade() -> None:
    connection = op.get_bind()
    for id, policy in connection.execute(sa.select(OFFERS.c.id, OFFERS.c.policy)).all():
        if "learners" not in policy:
            allowed = {**policy, "learners": ["averaging"]}
            connection.execute(sa.update(OFFERS).where(OFFERS.c.id == id).values(policy=allowed))
