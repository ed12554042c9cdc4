"""The FLARE workspaces of a market's server and of a provider, written as plain files.

Both sides accept no FLARE job at all: the authorization policy grants no right to any role, the class
allow-list is enforced and names nothing but our own component, and no job launcher is configured.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from databazaar.errors import BazaarError
from databazaar.federation.frames import MAX_BYTES
from databazaar.files import write_whole

SERVER_COMPONENT = "databazaar.federation.site.MarketSite"
PROVIDER_COMPONENT = "databazaar.federation.site.ProviderSite"
SCHEME = "http"
PRIVATE = 0o600
"""The mode of keys, tokens and accounts: nobody else on the machine can read them."""
_OVERHEAD = 64 * 1024
_ROLES = ("project_admin", "org_admin", "lead", "member")


def write_json(path: Path, value: Any) -> None:
    """Writes a file that only its owner can read, whole or not at all."""
    write_whole(path, json.dumps(value, indent=2, sort_keys=True).encode() + b"\n", PRIVATE)


def make_folder(folder: Path) -> None:
    """A folder for its owner alone, there also after a power cut. One that leads elsewhere is not taken."""
    if folder.is_symlink():
        raise BazaarError(f"{folder} is a link to another place: give a folder of its own")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync(folder.parent)
    except OSError as reason:
        raise BazaarError(f"{folder} cannot be made ({reason.strerror}): choose another place") from None


def sync(folder: Path) -> None:
    """What was put into a folder, or taken out of it, stays so after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def take_up(pending: Path, place: Path) -> None:
    """Put a file that lies ready in the place of another, in one step."""
    pending.replace(place)
    for folder in (place.parent, pending.parent):
        sync(folder)


def write_pair(startup: Path, name: str, certificate: str, key: bytes) -> None:
    """A certificate and its key, which nobody else can read from the first byte on."""
    write_whole(startup / f"{name}.crt", certificate.encode(), PRIVATE)
    write_whole(startup / f"{name}.key", key, PRIVATE)


def write_server_kit(
    workspace: Path,
    market: str,
    identity: str,
    host: str,
    port: int,
    authority: str,
    certificate: str,
    key: bytes,
) -> None:
    """The server's workspace: its certificate, one TLS port, and our component instead of a job store."""
    startup, local = _folders(workspace)
    write_whole(startup / "rootCA.pem", authority.encode(), PRIVATE)
    write_pair(startup, "server", certificate, key)
    server = {
        "name": market,
        "identity": identity,
        "service": {"target": f"{host}:{port}", "scheme": SCHEME},
        "admin_server": host,
        "admin_port": port,
        "ssl_private_key": "server.key",
        "ssl_cert": "server.crt",
        "ssl_root_cert": "rootCA.pem",
        "connection_security": "mtls",
    }
    write_json(startup / "fed_server.json", {"format_version": 2, "servers": [server]})
    storage = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [SERVER_COMPONENT],
        "servers": [{"admin_storage": "transfer", "max_num_clients": 1000, "heart_beat_timeout": 60}],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": storage,
                    "args": {"root_dir": str(workspace / "snapshots"), "uri_root": "/"},
                },
            },
        },
        "components": [
            {
                "id": "job_scheduler",
                "path": "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                "args": {"max_jobs": 1},
            },
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": {"uri_root": str(workspace / "jobs"), "job_store_id": "job_store"},
            },
            {"id": "job_store", "path": storage},
            {"id": "databazaar", "path": SERVER_COMPONENT, "args": {}},
        ],
    }
    write_json(local / "resources.json", resources)
    _policies(local)


def write_provider_kit(
    workspace: Path, market: str, identity: str, host: str, port: int, authority: str, certificate: str
) -> None:
    """The provider's workspace; its private key is there already and is not touched."""
    startup, local = _folders(workspace)
    write_whole(startup / "rootCA.pem", authority.encode(), PRIVATE)
    write_whole(startup / "client.crt", certificate.encode(), PRIVATE)
    target = {"target": f"{host}:{port}", "scheme": SCHEME}
    client = {
        "ssl_private_key": "client.key",
        "ssl_cert": "client.crt",
        "ssl_root_cert": "rootCA.pem",
        "connection_security": "mtls",
        "site_config": {},
    }
    servers = [{"name": market, "service": target, "identity": identity}]
    write_json(startup / "fed_client.json", {"format_version": 2, "servers": servers, "client": client})
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [PROVIDER_COMPONENT],
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30},
        "components": [{"id": "databazaar", "path": PROVIDER_COMPONENT, "args": {}}],
    }
    write_json(local / "resources.json", resources)
    _policies(local)


def _folders(workspace: Path) -> tuple[Path, Path]:
    startup, local = workspace / "startup", workspace / "local"
    for folder in (workspace, startup, local, workspace / "transfer"):
        make_folder(folder)
    return startup, local


def _policies(local: Path) -> None:
    rights = (
        "submit_job",
        "clone_job",
        "manage_job",
        "download_job",
        "operate",
        "shell_commands",
        "view",
        "byoc",
    )
    nothing = dict.fromkeys(rights, "none")
    write_json(local / "authorization.json", {"format_version": "1.0", "permissions": dict.fromkeys(_ROLES, nothing)})
    comm = {
        "allow_adhoc_conns": False,
        "backbone_conn_gen": 2,
        "streaming_max_blob_size": MAX_BYTES + _OVERHEAD,
        "internal": {"scheme": "tcp", "resources": {"host": "localhost", "connection_security": "mtls"}},
    }
    write_json(local / "comm_config.json", comm)
    log = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
        "handlers": {
            "logFileHandler": {
                "class": "logging.handlers.RotatingFileHandler",
                "filename": "log.txt",
                "maxBytes": 5_000_000,
                "backupCount": 3,
                "formatter": "plain",
            }
        },
        "loggers": {"root": {"level": "INFO", "handlers": ["logFileHandler"]}},
    }
    write_json(local / "log_config.json", log)
