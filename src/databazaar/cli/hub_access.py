"""Which hub the commands talk to: from the environment, or from a file that its owner alone can read. A token is never
given on the command line, where others on the machine see it."""

from __future__ import annotations

import os
import stat
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from databazaar.errors import BazaarError
from databazaar.files import write_whole

if TYPE_CHECKING:
    from databazaar.client import Hub

ADDRESS, TOKEN = "BAZAAR_HUB", "BAZAAR_TOKEN"
ASK = f"set {ADDRESS} and {TOKEN}, or run `bazaar jobs connect ADDRESS`"


def config_file() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "databazaar" / "hub.toml"


def connected() -> Hub:
    """The hub that the environment names, or else the file."""
    from databazaar.client import Hub

    return Hub(*named_hub())


def named_hub() -> tuple[str, str]:
    address, token = os.environ.get(ADDRESS, ""), os.environ.get(TOKEN, "")
    if not (address and token):
        kept = read_config(config_file())
        if address and address.rstrip("/") != kept.get("address", "").rstrip("/"):
            kept = {}  # a token is for its own hub alone
        address, token = address or kept.get("address", ""), token or kept.get("token", "")
    if not address or not token:
        raise BazaarError(f"it is not known which hub to ask: {ASK}")
    return address, token


def read_config(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise BazaarError(f"others can read {path}, which holds your token: chmod 600 {path}")
            found = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise BazaarError(f"{path} cannot be read: run `bazaar jobs connect ADDRESS` again") from None
    return {name: value for name, value in found.items() if isinstance(value, str)}


def asked_token() -> str:
    """From the keyboard, unseen, or from a pipe."""
    if sys.stdin.isatty():
        return str(typer.prompt("Token", hide_input=True, err=True))
    return sys.stdin.readline().strip()


def keep_config(address: str, token: str) -> Path:
    path = config_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if '"' in address + token or "\\" in address + token:
        raise BazaarError("an address or a token holds no quotation marks: copy it anew")
    write_whole(path, f'address = "{address}"\ntoken = "{token}"\n'.encode(), mode=0o600)
    return path
