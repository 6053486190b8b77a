"""A node with a TPM in this process: it makes offers and answers without programs and files."""

import base64
import secrets

from cryptography.hazmat.primitives.asymmetric import ec

from common import evidence
from common.challenge import MEMBERS, decode_challenge
from common.names import CLIENT_USAGES
from common.public_keys import public_key_from_area, spki_sha256
from common.requests.binding import answer_extra_data, sha256
from common.requests.csr import build_pkcs10, encode_request
from common.tpm.public import PublicArea
from tests.fakes.tpm import EndorsementName, FakeTpm


class SoftwareNode:
    """One node. Each offer begins a new exchange with a new kubelet key."""

    def __init__(
        self, name: str, provider_id: str, *, seed: str, endorsement: EndorsementName = "L-2"
    ) -> None:
        self.name = name
        self.provider_id = provider_id
        self._tpm = FakeTpm(seed, endorsement=endorsement)
        self._pkcs10 = b""

    def registration(self) -> str:
        """Return the value of the annotation that registers its endorsement key."""
        area = PublicArea.from_tpm2b(self._tpm.endorsement_key().public)
        return f"sha256:{spki_sha256(public_key_from_area(area)).hex()}"

    def offer(self, name: str) -> tuple[str, bytes]:
        """Return name and request of a new offer."""
        key = ec.generate_private_key(ec.SECP256R1())
        self._pkcs10 = build_pkcs10(key, node_name=self.name, provider_id=self.provider_id)
        offer = evidence.Offer(
            ek_public=self._tpm.endorsement_key().public,
            ek_certificates=(),
            ak_public=self._tpm.attestation_key().public,
        )
        return name, encode_request(self._pkcs10, evidence.encode_attestation_data(offer))

    def answer(self, offer_uid: str, annotation: str) -> tuple[str, bytes]:
        """Return name and request of the answer to a challenge."""
        challenge = decode_challenge(annotation)
        secret = self._tpm.activate_credential(
            challenge.credential_blob, challenge.encrypted_secret
        )
        name = f"kubelet-tpm-{secrets.token_hex(16)}"
        extra_data = answer_extra_data(
            secret,
            name=name,
            pkcs10_sha256=sha256(self._pkcs10),
            expiration_seconds=None,
            usages=CLIENT_USAGES,
            members=MEMBERS,
        )
        quote = self._tpm.quote(challenge.pcrs, extra_data)
        answer = evidence.Answer(
            ek_public=self._tpm.endorsement_key().public,
            ek_certificates=(),
            ak_public=self._tpm.attestation_key().public,
            challenge=evidence.ChallengeReference(
                uid=offer_uid, issued_at=challenge.issued_at, key=challenge.key
            ),
            quote=quote.attest,
            signature=quote.signature,
            pcrs=quote.pcrs,
            event_log=None,
        )
        return name, encode_request(self._pkcs10, evidence.encode_attestation_data(answer))


def csr_body(filed: tuple[str, bytes], signer_name: str) -> dict[str, object]:
    """Return the CSR that a node files."""
    name, request = filed
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "signerName": signer_name,
            "usages": sorted(CLIENT_USAGES),
            "request": base64.b64encode(request).decode(),
        },
    }
