"""A certificate authority for endorsement keys, as a TPM vendor has one.

`swtpm_setup` signs all TPMs of a machine with one authority. Tests need several unrelated ones, so
each trust domain has its own directory and configuration. All authorities have the name
`swtpm-localca`: only their keys differ.
"""

import subprocess
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

_LOCALCA = "/usr/bin/swtpm_localca"


def _configuration(**settings: object) -> str:
    """Return settings in the format of swtpm's tools."""
    return "".join(f"{name} = {value}\n" for name, value in settings.items())


class TrustDomain:
    """A root, an intermediate, and the endorsement certificates that the intermediate signs."""

    def __init__(self, directory: Path) -> None:
        """Create the authorities, with all their files in `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._localca = directory / "localca.conf"
        self._options = directory / "localca.options"
        self.configuration = directory / "swtpm_setup.conf"
        """File for `swtpm_setup --config`."""
        self._localca.write_text(
            _configuration(
                statedir=directory,
                signingkey=directory / "intermediate.key",
                issuercert=directory / "intermediate.pem",
                certserial=directory / "serial",
            ),
            encoding="utf-8",
        )
        self._options.write_text(
            "--platform-manufacturer Tests\n--platform-version 1\n--platform-model Node\n",
            encoding="utf-8",
        )
        self.configuration.write_text(
            _configuration(
                create_certs_tool=_LOCALCA,
                create_certs_tool_config=self._localca,
                create_certs_tool_options=self._options,
            ),
            encoding="utf-8",
        )
        # The tool creates its authorities with the first certificate, which is not used.
        self.certify(generate_private_key(SECP256R1()).public_key(), subject="first")

    @property
    def root(self) -> bytes:
        """The self-signed root, as PEM: the trust anchor of operators."""
        return (self._directory / "swtpm-localca-rootca-cert.pem").read_bytes()

    @property
    def intermediate(self) -> bytes:
        """The issuer of all endorsement certificates, as PEM."""
        return (self._directory / "intermediate.pem").read_bytes()

    def revoke(self, *serials: int) -> bytes:
        """Return the intermediate's revocation list, as DER, valid for a day."""
        issuer = x509.load_pem_x509_certificate(self.intermediate)
        key = load_pem_private_key((self._directory / "intermediate.key").read_bytes(), None)
        assert isinstance(key, RSAPrivateKey)
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(issuer.subject)
            .last_update(now - timedelta(minutes=1))
            .next_update(now + timedelta(days=1))
        )
        for serial in serials:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)

    def certify(self, key: RSAPublicKey | EllipticCurvePublicKey, *, subject: str) -> bytes:
        """Return an endorsement certificate for any key, as DER, even if no TPM has the key."""
        if isinstance(key, RSAPublicKey):
            parameters = f"{key.public_numbers().n:x}"
        else:
            numbers = key.public_numbers()
            digits = key.key_size // 4
            parameters = f"x={numbers.x:0{digits}x},y={numbers.y:0{digits}x},id={key.curve.name}"
        with tempfile.TemporaryDirectory() as output:
            subprocess.run(
                [
                    _LOCALCA, "--type", "ek", "--ek", parameters, "--dir", output, "--tpm2",
                    "--vmid", subject, "--configfile", self._localca, "--optsfile", self._options,
                    "--tpm-spec-family", "2.0", "--tpm-spec-level", "0",
                    "--tpm-spec-revision", "164", "--tpm-manufacturer", "id:00001014",
                    "--tpm-model", "swtpm", "--tpm-version", "id:20191023",
                ],
                check=True,
                capture_output=True,
            )  # fmt: skip
            return Path(output, "ek.cert").read_bytes()
