"""What an endorsement certificate says about its TPM."""

import pytest
from cryptography import x509

from signer.model import TpmIdentity
from signer.verify.x509.fields import read_fields
from signer.verify.x509.tpm_identity import read_tpm_identity
from tests.builders.certificates import leaf, leaf_extensions, san, vendor
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


def test_certificate_with_many_attributes_is_read_in_part() -> None:
    others = [(f"1.2.3.{n}", "x") for n in range(20)]
    name = directory_name(*others, ("2.23.133.2.2", "SLB9670"))
    assert identity_of(name) == TpmIdentity()
