"""The command `bazaar`."""

import signal


def main() -> None:
    """Runs the command. What it consists of is imported here: packages that add to it import parts of this one."""
    from databazaar.cli.interrupts import end, on_signal

    with on_signal(signal.SIGINT, end):
        from databazaar.cli.app import main as run

        run()
