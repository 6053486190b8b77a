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
from tests.attacks.runner import Attack, Mutation, assert_issued, assert_refused
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

ATTRIBUTES = [
    Attack("P5", "challengePassword", AttributeNotAllowed, attributes(CHALLENGE_PASSWORD)),
    Attack(
        "P5",
        "challengePassword before",
        AttributeNotAllowed,
        attributes(CHALLENGE_PASSWORD, extension_request(PROVIDER_EXTENSION)),
    ),
    Attack(
        "P5",
        "extensionRequest twice",
        AttributeNotAllowed,
        attributes(extension_request(PROVIDER_EXTENSION), extension_request(PROVIDER_EXTENSION)),
    ),
    Attack(
        "P5",
        "a second extensionRequest for another Machine",
        AttributeNotAllowed,
        attributes(extension_request(PROVIDER_EXTENSION), extension_request(OTHER_EXTENSION)),
    ),
    Attack(
        "P5",
        "extensionRequest of two values",
        AttributeNotAllowed,
        attributes(
            tlv(
                SEQUENCE,
                OID_EXTENSION_REQUEST,
                tlv(SET, *sorted((EXTENSION_SET, tlv(SEQUENCE, OTHER_EXTENSION)))),
            )
        ),
    ),
    Attack(
        "P5",
        "extensionRequest of no value",
        AttributeNotAllowed,
        attributes(tlv(SEQUENCE, OID_EXTENSION_REQUEST, tlv(SET))),
    ),
    Attack(
        "P5", "Microsoft's extensionRequest", AttributeNotAllowed, attributes(MICROSOFT_REQUEST)
    ),
    Attack(
        "P3",
        "extensionRequest by an OCTET STRING",
        RequestMalformed,
        attributes(tlv(SEQUENCE, "04" + OID_EXTENSION_REQUEST[2:], tlv(SET, EXTENSION_SET))),
    ),
]

EXTENSIONS = [
    Attack("P5", "CA:TRUE", ExtensionNotAllowed, extended(CA)),
    Attack(
        "P5", "CA:TRUE before the provider ID", ExtensionNotAllowed, only(CA, PROVIDER_EXTENSION)
    ),
    Attack("P5", "usage to sign certificates", ExtensionNotAllowed, extended(SIGN_CERTIFICATES)),
    Attack(
        "P5",
        "usage of a kubelet",
        ExtensionNotAllowed,
        extended(extension(OID_KEY_USAGE, bytes.fromhex("03020780"))),
    ),
    Attack("P5", "any purpose", ExtensionNotAllowed, extended(ANY_PURPOSE)),
    Attack("P5", "server authentication", ExtensionNotAllowed, extended(SERVER_AUTH)),
    Attack("P5", "subject key identifier", ExtensionNotAllowed, extended(SUBJECT_KEY)),
    Attack("P5", "name constraints", ExtensionNotAllowed, extended(NAME_CONSTRAINTS)),
    Attack(
        "P5",
        "an unknown extension",
        ExtensionNotAllowed,
        extended(extension("06032a0304", b"\5\0")),
    ),
    Attack(
        "P5",
        "an unknown critical extension",
        ExtensionNotAllowed,
        extended(extension("06032a0304", b"\5\0", TRUE)),
    ),
    Attack("P5", "provider ID twice", ExtensionNotAllowed, extended(PROVIDER_EXTENSION)),
    Attack("P5", "a second provider ID", ExtensionNotAllowed, extended(OTHER_EXTENSION)),
    Attack(
        "P3",
        "SAN by an OCTET STRING",
        RequestMalformed,
        extended(extension("04" + OID_SAN[2:], tlv(SEQUENCE))),
    ),
    Attack(
        "P5",
        "issuer's alternative name",
        ExtensionNotAllowed,
        extended(extension("0603551d12", tlv(SEQUENCE))),
    ),
    Attack(
        "P5",
        "DNS name in a client's request",
        ExtensionNotAllowed,
        extended(alt_names(tlv(0x82, b"node-1.example"))),
    ),
    Attack(
        "P5",
        "address in a client's request",
        ExtensionNotAllowed,
        extended(alt_names(tlv(0x87, b"\xc0\0\2\x0b"))),
    ),
    Attack("P5", "empty SAN in a client's request", ExtensionNotAllowed, extended(alt_names())),
]

PROVIDER_IDS = [
    Attack("P5", "no attributes", ProviderIDMissing, attributes()),
    Attack(
        "P5",
        "provider ID under the neighboring OID",
        ExtensionNotAllowed,
        only(extension("060a2b06010401d679020116", GOOD_VALUE)),
    ),
    Attack("P5", "critical provider ID", ProviderIDMalformed, provider_id(GOOD_VALUE, TRUE)),
    Attack("P5", "bare provider ID", ProviderIDMalformed, provider_id(PROVIDER_ID.encode())),
    Attack("P5", "nothing for a provider ID", ProviderIDMalformed, provider_id(b"")),
    Attack(
        "P5",
        "provider ID with a trailing byte",
        ProviderIDMalformed,
        provider_id(GOOD_VALUE + b"\0"),
    ),
    Attack(
        "P5",
        "two provider IDs in one value",
        ProviderIDMalformed,
        provider_id(GOOD_VALUE + GOOD_VALUE),
    ),
    Attack(
        "P5",
        "provider ID as PrintableString",
        ProviderIDMalformed,
        provider_id(tlv(PRINTABLE, PROVIDER_ID.encode())),
    ),
    Attack(
        "P5",
        "provider ID as OCTET STRING",
        ProviderIDMalformed,
        provider_id(tlv(0x04, PROVIDER_ID.encode())),
    ),
    Attack(
        "P5",
        "provider ID in a SEQUENCE",
        ProviderIDMalformed,
        provider_id(tlv(SEQUENCE, GOOD_VALUE)),
    ),
    Attack(
        "P5",
        "provider ID with a long length",
        ProviderIDMalformed,
        provider_id(b"\x0c\x81" + GOOD_VALUE[1:]),
    ),
    Attack(
        "P5",
        "provider ID that is no UTF-8",
        ProviderIDMalformed,
        provider_id(tlv(UTF8, b"metal://\xff")),
    ),
    Attack("P5", "empty provider ID", ProviderIDMalformed, text("")),
    Attack("P5", "provider ID with a trailing space", ProviderIDMalformed, text(PROVIDER_ID + " ")),
    Attack(
        "P5", "provider ID with a trailing line feed", ProviderIDMalformed, text(PROVIDER_ID + "\n")
    ),
    Attack("P5", "provider ID with NUL", ProviderIDMalformed, text(PROVIDER_ID + "\0x")),
    Attack("P5", "provider ID with DEL", ProviderIDMalformed, text(PROVIDER_ID + "\x7f")),
    Attack(
        "P5",
        "provider ID with Cyrillic letters",
        ProviderIDMalformed,
        text("m\u0435tal://rack-1/slot-1"),
    ),
    Attack(
        "P5",
        "provider ID with a zero-width space",
        ProviderIDMalformed,
        text(PROVIDER_ID + "\u200b"),
    ),
    Attack("P5", "provider ID of 513 characters", ProviderIDMalformed, text("x" * 513)),
    Attack(
        "M1",
        "provider ID in capitals",
        MachineNotFound,
        provider_id(tlv(UTF8, PROVIDER_ID.upper().encode())),
    ),
    Attack(
        "M1",
        "provider ID with a trailing slash",
        MachineNotFound,
        provider_id(tlv(UTF8, PROVIDER_ID.encode() + b"/")),
    ),
    Attack(
        "M1",
        "beginning of a provider ID",
        MachineNotFound,
        provider_id(tlv(UTF8, PROVIDER_ID.encode()[:-1])),
    ),
    Attack(
        "M1",
        "provider ID with a path up",
        MachineNotFound,
        provider_id(tlv(UTF8, b"metal://rack-2/../rack-1/slot-1")),
    ),
    Attack(
        "M1",
        "provider ID in per cent signs",
        MachineNotFound,
        provider_id(tlv(UTF8, b"metal://rack-1/slot%2d1")),
    ),
]

ATTACKS = ATTRIBUTES + EXTENSIONS + PROVIDER_IDS


def test_the_good_case_passes() -> None:
    assert_issued(Scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
