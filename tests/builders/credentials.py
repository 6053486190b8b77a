"""A credential for tests of the code that stores and serves it."""

import json
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from authenticator.model import KeyPair
from authenticator.state.credential import Credential

EXEC_INFO = (
    json.dumps(
        {
            "kind": "ExecCredential",
            "apiVersion": "client.authentication.k8s.io/v1",
            "spec": {"cluster": {"server": "https://a.example"}, "interactive": False},
        }
    ).encode()
    + b"\n"
)
CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
WITH_CA = EXEC_INFO.replace(
    b'"https://a.example"',
    b'"https://a.example", "certificate-authority-data": "%s"' % b64encode(CA.encode()),
)
"""An exec info that the full program accepts too."""

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = b"-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----\n"
DAY = 86400


def make(
    received: int,
    *,
    exec_info: bytes = EXEC_INFO,
    arguments: tuple[str, ...] = (),
    api_version: str = "client.authentication.k8s.io/v1",
    pair: KeyPair | None = None,
) -> Credential:
    """Make a credential for a week."""
    return Credential(
        node_name="worker-1",
        key_pair=pair or KeyPair(certificate=CERTIFICATE * 2, key=KEY),
        not_before=received - 300,
        not_after=received + 7 * DAY,
        received_at=received,
        exec_info=exec_info,
        arguments=arguments,
        api_version=api_version,
        provider_id="test:///1",
        known_calls=(sha256(exec_info).hexdigest()[:32],),
    )


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(content)
