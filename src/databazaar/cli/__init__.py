"""The command `bazaar`."""


def main() -> None:
    """Runs the command. What it consists of is imported here: packages that add to it import parts of this one."""
    from databazaar.cli.interrupts import ending_on_interrupts

    with ending_on_interrupts():
        from databazaar.cli.app import main as run

        run()
