"""FLARE's programs with our TLS: `python -m databazaar.federation.flare MODULE …` runs one of them.

FLARE's own client trusts every authority that the machine trusts and checks no host name, and its server knows no
revocation list. Both are put right before FLARE's program begins, so that no connection is made without.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from ssl import SSLContext
from typing import Any

from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers import net_utils
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.private.fed.utils import identity_utils

from databazaar.federation import revocations
from databazaar.federation.tls import REVOKED, client_context, server_context

_verify_common_name = identity_utils.IdentityVerifier.verify_common_name


def ssl_context(params: dict[str, Any], ssl_server: bool) -> SSLContext:
    """In place of FLARE's `get_ssl_context`: never without TLS, never with another authority."""
    if not net_utils.ssl_required(params):
        raise CommError(CommError.BAD_CONFIG, "a connection without TLS was configured: make the kit again")
    authority = Path(params[DriverParams.CA_CERT.value])
    server = params.get(DriverParams.SERVER_CERT.value), params.get(DriverParams.SERVER_KEY.value)
    client = params.get(DriverParams.CLIENT_CERT.value), params.get(DriverParams.CLIENT_KEY.value)
    pairs = (server, client) if ssl_server else (client, server)
    certificate, key = next((Path(c), Path(k)) for c, k in pairs if c and k)
    if ssl_server:
        return server_context(certificate, key, authority)
    configured = json.loads((authority.parent / "fed_client.json").read_bytes())
    return client_context(certificate, key, authority, str(configured["servers"][0]["identity"]))


def verify_common_name(self: Any, asserted_cn: str, nonce: str, asserter_cert: Any, *rest: Any, **more: Any) -> bool:
    """In place of FLARE's check of who registers: a certificate on the revocation list is nobody's any more."""
    if asserter_cert.serial_number in revocations.in_force(Path.cwd() / "startup" / REVOKED):
        raise identity_utils.InvalidAsserterCert(f"the certificate of {asserted_cn} is revoked")
    return bool(_verify_common_name(self, asserted_cn, nonce, asserter_cert, *rest, **more))


def install() -> None:
    """Before FLARE's drivers are loaded, which take these functions by name."""
    net_utils.get_ssl_context = ssl_context
    identity_utils.IdentityVerifier.verify_common_name = verify_common_name


if __name__ == "__main__":
    install()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
