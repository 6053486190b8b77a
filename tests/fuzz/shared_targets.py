"""Fuzz targets: the parsers of `common`, which both programs use."""

import base64
import json
from dataclasses import replace
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from common import evidence
from common.challenge import decode_challenge, encode_challenge
from common.errors import (
    AttestationDataMalformed,
    AttributeNotAllowed,
    ChallengeMalformed,
    ExtensionNotAllowed,
    NodeNameInvalid,
    PemBlocksUnexpected,
    PemNotCanonical,
    ProviderIDMalformed,
    ProviderUnknown,
    RequestKeyNotAllowed,
    RequestMalformed,
    RequestSignatureInvalid,
    SubjectNotAllowed,
    TooLarge,
    UnsupportedVersion,
)
from common.formats.pem import PemMalformed, decode_blocks, encode_block
from common.names import NODE_USER_PREFIX, NODES_GROUP, PEM_REQUEST
from common.requests.csr import (
    decode_plain_request,
    decode_request,
    encode_request,
)
from common.requests.pkcs10 import OtherGeneralName, Pkcs10, parse_pkcs10
from common.tpm.attest import Attest, created_object
from common.tpm.pcrs import PcrSelection, encode_selection, parse_selection
from common.tpm.public import PublicArea
from common.tpm.reader import StructureMalformed
from common.tpm.signature import Signature
from signer.issue.challenge import make_challenge
from tests import vectors
from tests.builders import der, event_logs, forgery
from tests.builders.der import DerMalformed, Element
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import AK_KINDS, attestation_key, endorsement_key
from tests.builders.virtual_machines import creation_of
from tests.fuzz.mutations import Form
from tests.fuzz.target import Target

PKCS10_ERRORS = (
    *(TooLarge, RequestMalformed, RequestKeyNotAllowed, RequestSignatureInvalid),
    *(SubjectNotAllowed, NodeNameInvalid, AttributeNotAllowed, ExtensionNotAllowed),
    ProviderIDMalformed,
)
SPLIT_ERRORS = (TooLarge, PemNotCanonical, PemBlocksUnexpected, ProviderUnknown)
EVIDENCE_ERRORS = (TooLarge, UnsupportedVersion, AttestationDataMalformed)


@cache
def scenario() -> Scenario:
    """Return a valid scenario."""
    return Scenario()


def public_areas() -> list[bytes]:
    """Return public areas of several types of keys."""
    kinds = ("ecdsa-p384-sha384", "rsapss-2048-sha256")
    keys = [*map(endorsement_key, (0, 1, 4)), *(attestation_key(AK_KINDS[kind]) for kind in kinds)]
    return [key.public.encode() for key in (*keys, scenario().ak)]


def _public(data: bytes) -> None:
    public = PublicArea.parse(data)
    assert public.encode() == data
    assert PublicArea.from_tpm2b(public.to_tpm2b()) == public
    assert len(public.name()) > 2


def _attest(data: bytes) -> None:
    assert Attest.parse(data).encode() == data


def _attests() -> list[bytes]:
    return [
        *(bytes.fromhex(c["attest"]) for c in vectors.cases("quotes")),
        scenario().attest().encode(),
    ]


def _creation(data: bytes) -> None:
    assert created_object(data) in data


def _creations() -> list[bytes]:
    return [creation_of(scenario().ek, scenario().ak).attest]


def _signature(data: bytes) -> None:
    signature = Signature.parse(data)
    assert signature.encode() == data
    signature.x509()


def _signatures() -> list[bytes]:
    return [bytes.fromhex(c["signature"]) for c in vectors.cases("quotes")]


def _selection(data: bytes) -> None:
    assert encode_selection(parse_selection(data)) == data


def _selections() -> list[bytes]:
    chosen: tuple[PcrSelection, ...] = (
        *({}, {"sha256": tuple(range(8))}),
        {"sha1": (), "sha256": (0, 23), "sha384": (7,)},
    )
    return [encode_selection(selection) for selection in chosen]


def _der(data: bytes) -> None:
    assert _written(der.parse(data)) == data


def _written(element: Element) -> bytes:
    """Encode an element from its parts."""
    content = b"".join(map(_written, element.children)) if element.children else element.content
    return der.encode(element.tag, content)


def requests() -> list[bytes]:
    """Return PKCS#10 requests of this project, OpenSSL and Go."""
    others = [bytes.fromhex(c["der"]) for c in vectors.cases("requests") if "der" in c]
    return [scenario().pkcs10(), forgery.Forgery().der(), *others]


def _pem(data: bytes) -> None:
    blocks = decode_blocks(data)
    assert b"".join(encode_block(*block) for block in blocks) == data


def _pems() -> list[bytes]:
    return [encode_block("A", bytes(size)) for size in (0, 1, 48, 49)] + [_request_text()]


def _request_text() -> bytes:
    return scenario().offer_csr().request


def _split(data: bytes) -> None:
    request, content = decode_request(data)
    assert encode_request(request, content) == data


def _split_single(data: bytes) -> None:
    assert encode_block(PEM_REQUEST, decode_plain_request(data)) == data


def _pkcs10(data: bytes) -> None:
    _require_same(parse_pkcs10(data))


def _pkcs10_signed(data: bytes) -> None:
    """Sign the input, so that checks after the signature run as well."""
    signature = forgery.KEY.sign(data, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))
    bits = der.encode(der.BIT_STRING, b"\0" + signature)
    algorithm = bytes.fromhex(forgery.ECDSA_SHA256)
    _require_same(parse_pkcs10(der.encode(der.SEQUENCE, data + algorithm + bits)))


def _signed_parts() -> list[bytes]:
    names = forgery.alt_names(b"\x82\x01a", b"\x87\x04\x0a\0\0\1", b"\x86\x03a:b")
    serving = forgery.extension_request(forgery.PROVIDER_ID, names)
    forgeries = (forgery.Forgery(), forgery.Forgery(attributes=(serving,)))
    return [der.parse(each.der()).children[0].der for each in forgeries]


def _require_same(request: Pkcs10) -> None:
    """Compare an accepted request with two other parsers, since the API server uses another one."""
    if not any(isinstance(name, OtherGeneralName) for name in request.subject_alt_names or ()):
        # The content of other name types does not matter: no request may have them.
        assert _written(der.parse(request.der)) == request.der
    other = x509.load_der_x509_csr(request.der)
    names = {attribute.oid: attribute.value for attribute in other.subject}
    assert len(list(other.subject)) == 2
    assert names[NameOID.ORGANIZATION_NAME] == NODES_GROUP
    assert names[NameOID.COMMON_NAME] == NODE_USER_PREFIX + request.node_name
    assert other.public_key() == request.public_key
    assert other.is_signature_valid


def _evidence(data: bytes) -> None:
    document = evidence.decode_attestation_data(data)
    assert evidence.decode_attestation_data(evidence.encode_attestation_data(document)) == document


def _documents() -> list[bytes]:
    world = scenario()
    logged = world.answer(event_log=event_logs.log_of(event_logs.firmware()))
    creation = creation_of(world.ek, world.ak)
    certified = replace(world.offer(), ak_certificate=b"certificate", ek_creation=creation)
    documents = (world.offer(), world.answer(), logged, certified)
    return [evidence.encode_attestation_data(document) for document in documents]


def _gzip(data: bytes) -> None:
    """Put the input into the compressed member."""
    document = json.loads(evidence.encode_attestation_data(scenario().answer()))
    document["eventLog"] = base64.b64encode(data).decode()
    answer = evidence.decode_attestation_data(json.dumps(document).encode())
    assert isinstance(answer, evidence.Answer)
    assert answer.event_log is not None
    assert len(answer.event_log) <= evidence.MAX_EVENT_LOG


def _gzips() -> list[bytes]:
    logs = (b"", b"short", event_logs.log_of(event_logs.firmware()), bytes(100_000))
    documents = [
        json.loads(evidence.encode_attestation_data(scenario().answer(event_log=log)))
        for log in logs
    ]
    return [base64.b64decode(document["eventLog"]) for document in documents]


def _challenge(data: bytes) -> None:
    # JSON of the API server may contain lone surrogates.
    challenge = decode_challenge(data.decode("utf-8", "surrogateescape"))
    assert decode_challenge(encode_challenge(challenge)) == challenge


def _challenges() -> list[bytes]:
    world = scenario()
    challenge = make_challenge(
        world.verify_offer(),
        world.offer_csr(),
        cluster=world.cluster,
        policy=world.policy,
        challenge_keys=world.challenge_keys,
        now=world.now,
        random=bytes,
    )
    return [challenge.encode()]


TARGETS = (
    Target(name="tpm-public", run=_public, seeds=public_areas, errors=(StructureMalformed,)),
    Target(name="tpm-attest", run=_attest, seeds=_attests, errors=(StructureMalformed,)),
    Target(name="tpm-creation", run=_creation, seeds=_creations, errors=(StructureMalformed,)),
    Target(name="tpm-signature", run=_signature, seeds=_signatures, errors=(StructureMalformed,)),
    Target(name="pcr-selection", run=_selection, seeds=_selections, errors=(StructureMalformed,)),
    Target(name="der", run=_der, seeds=requests, errors=(DerMalformed,), form=Form.DER),
    Target(name="pem", run=_pem, seeds=_pems, errors=(PemMalformed,), form=Form.LINES),
    Target(
        name="request-blocks",
        run=_split,
        seeds=lambda: [_request_text()],
        errors=SPLIT_ERRORS,
        form=Form.PEM,
    ),
    Target(
        name="request-block",
        run=_split_single,
        seeds=lambda: [encode_block(PEM_REQUEST, scenario().pkcs10())],
        errors=SPLIT_ERRORS,
        form=Form.PEM,
    ),
    Target(name="pkcs10", run=_pkcs10, seeds=requests, errors=PKCS10_ERRORS, form=Form.DER),
    Target(
        name="pkcs10-signed",
        run=_pkcs10_signed,
        seeds=_signed_parts,
        errors=PKCS10_ERRORS,
        form=Form.DER,
    ),
    Target(
        name="evidence", run=_evidence, seeds=_documents, errors=EVIDENCE_ERRORS, form=Form.JSON
    ),
    Target(name="event-log-gzip", run=_gzip, seeds=_gzips, errors=EVIDENCE_ERRORS),
    Target(
        name="challenge",
        run=_challenge,
        seeds=_challenges,
        errors=(ChallengeMalformed,),
        form=Form.JSON,
    ),
)
