"""A node that the tests control: it files any object, step by step."""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from authenticator.tpm.open_tpm import open_tpm
from common import evidence
from common.challenge import MEMBERS, Challenge, decode_challenge
from common.names import (
    CHALLENGE_ANNOTATION,
    CLIENT_SIGNER,
    CLIENT_USAGES,
    SERVING_SIGNER,
    SERVING_USAGES,
)
from common.requests.binding import answer_extra_data, sha256
from common.requests.csr import build_pkcs10, encode_request
from tests.harness.client import Client
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.tpm import SoftwareTpm
from tests.integration import csrs
from tests.integration.tpms import seconds


class Script:
    """One exchange. The constructor files the offer."""

    usages = CLIENT_USAGES
    signer_name = CLIENT_SIGNER

    def __init__(
        self,
        node: Node,
        *,
        client: Client | None = None,
        dns_names: Sequence[str] = (),
        ip_addresses: Sequence[IPv4Address | IPv6Address] = (),
    ) -> None:
        """File the offer, by default with a new bootstrap token."""
        self.node = node
        workload = node.tenant.workload
        self.client = client or workload.with_token(workload.bootstrap_token())
        self.pkcs10 = build_pkcs10(
            generate_private_key(SECP256R1()),
            node_name=node.name,
            provider_id=node.provider_id,
            dns_names=dns_names,
            ip_addresses=ip_addresses,
        )
        with open_tpm(node.tpm.tcti, deadline=seconds()) as tpm:
            endorsement_key = tpm.endorsement_key()
            self.offered = evidence.Offer(
                ek_public=endorsement_key.public,
                ek_certificates=endorsement_key.certificates,
                ak_public=tpm.attestation_key().public,
            )
        self.offer = self.put("", evidence.encode_attestation_data(self.offered))

    def put(self, name: str, data: bytes) -> str:
        """File attestation data with the request, and return the name of the CSR."""
        return csrs.file(
            self.client,
            encode_request(self.pkcs10, data),
            name=name,
            signerName=self.signer_name,
            usages=sorted(self.usages),
        )

    def annotation(self, key: str) -> str:
        """Wait for an annotation on the offer."""
        return csrs.annotated(self.client, self.offer, key)

    def waiting_for(self, reason: str) -> str:
        """Wait until the offer waits for this reason, and return the whole annotation."""
        return csrs.waiting_for(self.client, self.offer, reason)

    def challenge(self) -> Challenge:
        """Wait for the challenge to the offer."""
        return decode_challenge(self.annotation(CHALLENGE_ANNOTATION))

    def extra_data(self, name: str) -> bytes:
        """Return the extraData that a quote in the answer `name` must have."""
        challenge = self.challenge()
        with open_tpm(self.node.tpm.tcti, deadline=seconds()) as tpm:
            secret = tpm.activate_credential(challenge.credential_blob, challenge.encrypted_secret)
        return answer_extra_data(
            secret,
            name=name,
            pkcs10_sha256=sha256(self.pkcs10),
            expiration_seconds=None,
            usages=self.usages,
            members=MEMBERS,
        )

    def answer(self, name: str, *, quoting: SoftwareTpm | None = None) -> evidence.Answer:
        """Make the answer for the CSR `name`; `quoting` may be a TPM other than the offer's."""
        challenge, extra_data = self.challenge(), self.extra_data(name)
        quoting = quoting or self.node.tpm
        with open_tpm(quoting.tcti, deadline=seconds()) as tpm:
            quote = tpm.quote(challenge.pcrs, extra_data)
            ak_public = tpm.attestation_key().public
        answer = self.reply(quote=quote.attest, signature=quote.signature)
        return replace(answer, ak_public=ak_public, pcrs=quote.pcrs)

    def reply(self, *, quote: bytes, signature: bytes) -> evidence.Answer:
        """Make an answer from a quote, with the keys of the offer and without PCRs."""
        challenge = self.challenge()
        uid = self.client.get(f"{csrs.CSRS}/{self.offer}")["metadata"]["uid"]
        return evidence.Answer(
            ek_public=self.offered.ek_public,
            ek_certificates=self.offered.ek_certificates,
            ak_public=self.offered.ak_public,
            challenge=evidence.ChallengeReference(
                uid=uid, issued_at=challenge.issued_at, key=challenge.key
            ),
            quote=quote,
            signature=signature,
            pcrs={},
            event_log=None,
        )

    def encoded(self, name: str) -> bytes:
        """Make the answer for the CSR `name`, in the encoding in which it is filed."""
        return evidence.encode_attestation_data(self.answer(name))

    def file(self, name: str, answer: evidence.Answer) -> dict[str, str]:
        """File an answer under a name, and return its conditions."""
        return csrs.decided(self.client, self.put(name, evidence.encode_attestation_data(answer)))

    def refusal(self) -> str:
        """Wait until the offer is denied, and return the reason."""
        return csrs.decided(self.client, self.offer)["Denied"]

    def refusal_by_claim(self) -> str:
        """Return why the offer or the answer is denied, for a reason that depends on a claim.

        The signer judges the offer by its cache of claims, and the answer by a live read.
        """

        def judged() -> bool:
            metadata = self.client.get(f"{csrs.CSRS}/{self.offer}")["metadata"]
            challenged = CHALLENGE_ANNOTATION in metadata.get("annotations", {})
            return challenged or bool(csrs.conditions(self.client, self.offer))

        wait_until(judged, what=f"a challenge for {self.offer}, or a verdict on it")
        denied = csrs.conditions(self.client, self.offer) or self.attest()
        return denied["Denied"]

    def attest(self) -> dict[str, str]:
        """Answer as an honest node does, and return the answer's conditions."""
        name = csrs.new_name()
        return self.file(name, self.answer(name))


class ServingScript(Script):
    """The same exchange for a serving certificate."""

    usages = SERVING_USAGES
    signer_name = SERVING_SIGNER
