"""What a market does against those who play for the money. One rule a file; all of it is read without torch."""

from databazaar.defence.findings import Findings
from databazaar.defence.judge import Verdict, judge
from databazaar.defence.owner_groups import OwnerGroups
from databazaar.defence.settings import Defence, defence_of

__all__ = ["Defence", "Findings", "OwnerGroups", "Verdict", "defence_of", "judge"]
