"""What a run leaves behind: its folder, and the report that its ledger adds up to."""
