"""Extensions and attributes for more than a kubelet's certificate.

A signer that copies requested extensions issues CAs and certificates for any purpose. This signer
copies none. It refuses unknown ones, so that no requester believes that they were granted. The
provider ID identifies the Machine, so it has one form as well (P5).
"""

import pytest

from common.errors import (
    AttributeNotAllowed,
    ExtensionNotAllowed,
    ProviderIDMalformed,
    RequestMalformed,
)
from signer.errors import MachineNotFound, ProviderIDMissing
from tests.attacks.requests import PROVIDER_EXTENSION, extended, forged, forgery
from tests.attacks.runner import Attack, Mutation, Table, assert_issued, assert_refused, attacks
from tests.builders.forgery import (
    OID_EXTENSION_REQUEST,
    OID_KEY_USAGE,
    OID_PROVIDER_ID,
    OID_SAN,
    PRINTABLE,
    SEQUENCE,
    SET,
    TRUE,
    UTF8,
    alt_names,
    extension,
    extension_request,
    tlv,
)
from tests.builders.scenario import PROVIDER_ID, Scenario

EXTENSION_SET = tlv(SEQUENCE, PROVIDER_EXTENSION)
OTHER_EXTENSION = extension(OID_PROVIDER_ID, tlv(UTF8, b"metal://rack-1/slot-2"))
CHALLENGE_PASSWORD = tlv(SEQUENCE, "06092a864886f70d010907", tlv(SET, tlv(UTF8, b"x")))
CA = extension("0603551d13", bytes.fromhex("30030101ff"), TRUE)
ANY_PURPOSE = extension("0603551d25", bytes.fromhex("300606" + "04551d2500"))
SERVER_AUTH = extension("0603551d25", bytes.fromhex("300a06082b06010505070301"))
SIGN_CERTIFICATES = extension(OID_KEY_USAGE, bytes.fromhex("03020204"))
SUBJECT_KEY = extension("0603551d0e", tlv(0x04, b"0123456789"))
NAME_CONSTRAINTS = extension("0603551d1e", bytes.fromhex("3000"))
MICROSOFT_REQUEST = tlv(SEQUENCE, "060a2b060104018237020" + "10e", tlv(SET, EXTENSION_SET))


def attributes(*values: bytes) -> Mutation:
    """Request with these attributes."""
    return forged(attributes=values)


def only(*extensions: bytes) -> Mutation:
    """Request with these extensions alone."""
    return forged(attributes=(extension_request(*extensions),))


def provider_id(value: bytes, *critical: str) -> Mutation:
    """Request with a provider ID in another form, and give it to the Machine."""
    return only(extension(OID_PROVIDER_ID, value, *critical))


def text(text: str) -> Mutation:
    """Request with a malformed provider ID, and give it to the Machine."""

    def mutate(scenario: Scenario) -> None:
        scenario.change_machine(provider_id=text)
        value = extension(OID_PROVIDER_ID, tlv(UTF8, text.encode()))
        scenario.request_der = forgery(scenario, attributes=(extension_request(value),)).der()

    return mutate


GOOD_VALUE = tlv(UTF8, PROVIDER_ID.encode())

ATTRIBUTES: Table = {
    AttributeNotAllowed: {
        "challengePassword": attributes(CHALLENGE_PASSWORD),
        "challengePassword before": attributes(
            CHALLENGE_PASSWORD, extension_request(PROVIDER_EXTENSION)
        ),
        "extensionRequest twice": attributes(
            extension_request(PROVIDER_EXTENSION), extension_request(PROVIDER_EXTENSION)
        ),
        "a second extensionRequest for another Machine": attributes(
            extension_request(PROVIDER_EXTENSION), extension_request(OTHER_EXTENSION)
        ),
        "extensionRequest of two values": attributes(
            tlv(
                SEQUENCE,
                OID_EXTENSION_REQUEST,
                tlv(SET, *sorted((EXTENSION_SET, tlv(SEQUENCE, OTHER_EXTENSION)))),
            )
        ),
        "extensionRequest of no value": attributes(tlv(SEQUENCE, OID_EXTENSION_REQUEST, tlv(SET))),
        "Microsoft's extensionRequest": attributes(MICROSOFT_REQUEST),
    },
    RequestMalformed: {
        "extensionRequest by an OCTET STRING": attributes(
            tlv(SEQUENCE, "04" + OID_EXTENSION_REQUEST[2:], tlv(SET, EXTENSION_SET))
        )
    },
}

EXTENSIONS: Table = {
    ExtensionNotAllowed: {
        "CA:TRUE": extended(CA),
        "CA:TRUE before the provider ID": only(CA, PROVIDER_EXTENSION),
        "usage to sign certificates": extended(SIGN_CERTIFICATES),
        "usage of a kubelet": extended(extension(OID_KEY_USAGE, bytes.fromhex("03020780"))),
        "any purpose": extended(ANY_PURPOSE),
        "server authentication": extended(SERVER_AUTH),
        "subject key identifier": extended(SUBJECT_KEY),
        "name constraints": extended(NAME_CONSTRAINTS),
        "an unknown extension": extended(extension("06032a0304", b"\5\0")),
        "an unknown critical extension": extended(extension("06032a0304", b"\5\0", TRUE)),
        "provider ID twice": extended(PROVIDER_EXTENSION),
        "a second provider ID": extended(OTHER_EXTENSION),
        "issuer's alternative name": extended(extension("0603551d12", tlv(SEQUENCE))),
        "DNS name in a client's request": extended(alt_names(tlv(0x82, b"node-1.example"))),
        "address in a client's request": extended(alt_names(tlv(0x87, b"\xc0\0\2\x0b"))),
        "empty SAN in a client's request": extended(alt_names()),
    },
    RequestMalformed: {
        "SAN by an OCTET STRING": extended(extension("04" + OID_SAN[2:], tlv(SEQUENCE)))
    },
}

PROVIDER_IDS: Table = {
    ProviderIDMissing: {"no attributes": attributes()},
    ExtensionNotAllowed: {
        "provider ID under the neighboring OID": only(
            extension("060a2b06010401d679020116", GOOD_VALUE)
        )
    },
    ProviderIDMalformed: {
        "critical provider ID": provider_id(GOOD_VALUE, TRUE),
        "bare provider ID": provider_id(PROVIDER_ID.encode()),
        "nothing for a provider ID": provider_id(b""),
        "provider ID with a trailing byte": provider_id(GOOD_VALUE + b"\0"),
        "two provider IDs in one value": provider_id(GOOD_VALUE + GOOD_VALUE),
        "provider ID as PrintableString": provider_id(tlv(PRINTABLE, PROVIDER_ID.encode())),
        "provider ID as OCTET STRING": provider_id(tlv(0x04, PROVIDER_ID.encode())),
        "provider ID in a SEQUENCE": provider_id(tlv(SEQUENCE, GOOD_VALUE)),
        "provider ID with a long length": provider_id(b"\x0c\x81" + GOOD_VALUE[1:]),
        "provider ID that is no UTF-8": provider_id(tlv(UTF8, b"metal://\xff")),
        "empty provider ID": text(""),
        "provider ID with a trailing space": text(PROVIDER_ID + " "),
        "provider ID with a trailing line feed": text(PROVIDER_ID + "\n"),
        "provider ID with NUL": text(PROVIDER_ID + "\0x"),
        "provider ID with DEL": text(PROVIDER_ID + "\x7f"),
        "provider ID with Cyrillic letters": text("m\u0435tal://rack-1/slot-1"),
        "provider ID with a zero-width space": text(PROVIDER_ID + "\u200b"),
        "provider ID of 513 characters": text("x" * 513),
    },
    MachineNotFound: {
        "provider ID in capitals": provider_id(tlv(UTF8, PROVIDER_ID.upper().encode())),
        "provider ID with a trailing slash": provider_id(tlv(UTF8, PROVIDER_ID.encode() + b"/")),
        "beginning of a provider ID": provider_id(tlv(UTF8, PROVIDER_ID.encode()[:-1])),
        "provider ID with a path up": provider_id(tlv(UTF8, b"metal://rack-2/../rack-1/slot-1")),
        "provider ID in per cent signs": provider_id(tlv(UTF8, b"metal://rack-1/slot%2d1")),
    },
}

ATTACKS = attacks(ATTRIBUTES, EXTENSIONS, PROVIDER_IDS)


def test_the_good_case_passes() -> None:
    assert_issued(Scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
