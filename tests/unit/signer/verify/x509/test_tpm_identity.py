"""What an endorsement certificate says about its TPM."""

from dataclasses import replace

import pytest
from cryptography import x509

from signer.verify.x509.fields import Extension, read_fields
from signer.verify.x509.tpm_identity import TpmIdentity, read_tpm_identity
from tests.builders.certificates import leaf, leaf_extensions, san, vendor
from tests.builders.der import OBJECT_IDENTIFIER, SEQUENCE, SET, encode
from tests.builders.software_tpm import endorsement_key

KEY = endorsement_key().private.public_key()


def identity_of(*names: x509.GeneralName) -> TpmIdentity:
    extensions = leaf_extensions(KEY)
    extensions = {e: c for e, c in extensions.items() if e.oid != san().oid}
    if names:
        extensions[x509.SubjectAlternativeName(names)] = True
    return read_tpm_identity(read_fields(leaf(vendor()[1], KEY, extensions=extensions)))


def directory_name(*attributes: tuple[str, str]) -> x509.DirectoryName:
    return x509.DirectoryName(
        x509.Name(x509.NameAttribute(x509.ObjectIdentifier(oid), text) for oid, text in attributes)
    )


def test_manufacturer_model_and_firmware_are_read() -> None:
    certificate = read_fields(leaf(vendor()[1], KEY))
    assert read_tpm_identity(certificate) == TpmIdentity(
        manufacturer="AMD", model="AMD", firmware="id:00030002"
    )


def test_certificate_without_a_directory_name_says_nothing() -> None:
    assert identity_of() == TpmIdentity()
    assert identity_of(x509.DNSName("tpm.example")) == TpmIdentity()


@pytest.mark.parametrize("text", ["\x1b[2J", "a" * 65, "\u202eevil"])
def test_text_that_could_mislead_an_operator_is_left_out(text: str) -> None:
    name = directory_name(("2.23.133.2.1", text), ("2.23.133.2.2", "SLB9670"))
    assert identity_of(name) == TpmIdentity(model="SLB9670")


@pytest.mark.parametrize("text", ["id:1B5B324A", "id:494E544", "Infineon"])
def test_vendor_id_that_is_not_four_letters_stays_as_it_is_written(text: str) -> None:
    assert identity_of(directory_name(("2.23.133.2.1", text))).manufacturer == text


def test_model_of_64_characters_is_the_longest() -> None:
    assert identity_of(directory_name(("2.23.133.2.2", "a" * 64))).model == "a" * 64


@pytest.mark.parametrize(("others", "model"), [(15, "SLB9670"), (16, "")])
def test_first_16_attributes_are_read(others: int, model: str) -> None:
    attributes = [(f"1.2.3.{n}", "x") for n in range(others)]
    name = directory_name(*attributes, ("2.23.133.2.2", "SLB9670"))
    assert identity_of(name) == TpmIdentity(model=model)


@pytest.mark.parametrize("parts", [1, 3])
def test_attribute_that_is_no_pair_says_nothing(parts: int) -> None:
    """The bytes come from the node, and must not cause another error than a refusal."""
    attribute = encode(SEQUENCE, encode(OBJECT_IDENTIFIER, b"\x55\x04\x03") * parts)
    names = encode(SEQUENCE, encode(0xA4, encode(SEQUENCE, encode(SET, attribute))))
    certificate = read_fields(leaf(vendor()[1], KEY))
    extensions = {"2.5.29.17": Extension(critical=True, value=names)}
    assert read_tpm_identity(replace(certificate, extensions=extensions)) == TpmIdentity()
