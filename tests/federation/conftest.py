"""One running federation for the tests of a file, so that files may run in any order and side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from databazaar.federation.grpc_transport import GrpcTransport
from loopback import WAIT, Federation


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    made = Federation(tmp_path_factory.mktemp("federation"))
    try:
        for name in ("bank1", "bank2", "bank3"):
            made.enroll(name)
        made.up()
        for name in ("bank1", "bank2", "bank3"):
            made.start(name)
        with GrpcTransport(made.market) as opened:  # a test that comes first finds them all
            assert opened.wait_for(["bank1", "bank2", "bank3"], WAIT) == []
        yield made
    finally:
        made.close()


@pytest.fixture
def transport(federation: Federation) -> Iterator[GrpcTransport]:
    with GrpcTransport(federation.market) as opened:
        assert opened.wait_for(["bank1", "bank2", "bank3"], WAIT) == []
        yield opened
