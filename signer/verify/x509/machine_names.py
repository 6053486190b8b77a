"""Endorsement certificates that name the machine (E2): which provider ID a certificate is for.

A cloud or a hypervisor that certifies the key of a virtual TPM can write into the certificate which
machine the TPM belongs to. The policy says which forms of such names count, and for which
Machines. The caller has verified the chain: the signature of a configured authority covers all
that is read here.

- Google Compute Engine: extension 1.3.6.1.4.1.11129.2.1.21, a SEQUENCE with zone, project and
  instance. A request has the same OID with a UTF8String, our provider ID. The tag tells them apart,
  and neither counts as the other.
- libvirt (OpenStack, KubeVirt, oVirt): `swtpm_localca` writes the common name `<name>:<UUID>` with
  the name and the UUID of the domain.

Source: google/go-tpm-tools (server/instance_info.go); swtpm_localca(8), option `--vmid`.
"""

import re
from collections.abc import Sequence
from typing import Final

from common.names import PROVIDER_ID_OID
from signer.errors import (
    EndorsementCertificateMalformed,
    EndorsementCertificateNameNotAllowed,
    EndorsementCertificateOfOtherMachine,
)
from signer.policy.policy import CertificateNameRules
from signer.verify.x509.certificate_chain import REMEDY
from signer.verify.x509.fields import CertificateFields
from signer.verify.x509.lenient_der import (
    BOOLEAN,
    SEQUENCE,
    CertificateMalformed,
    Element,
    children,
    oid,
    single_element,
)

_UTF8_STRING: Final = 0x0C
_SECURITY_PROPERTIES: Final = 0xA0
_IS_PRODUCTION: Final = 0xA1
"""Explicit tags of the last member of the extension, and of one of its members."""
_GCE_PART: Final = re.compile(r"[a-z0-9][a-z0-9.:-]*")
"""Zone, project ID (also `example.com:project`) and instance name: none can contain a slash."""
_COMMON_NAME: Final = "2.5.4.3"
_DOMAIN_NAME: Final = re.compile(
    r".+:([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", re.DOTALL
)


def verify_machine_name(
    leaf: CertificateFields, provider_id: str, rules: CertificateNameRules
) -> str | None:
    """Return the name in the certificate that is this Machine's; `None` if it names no machine.

    Raises:
        EndorsementCertificateOfOtherMachine: it names another machine.
        EndorsementCertificateNameNotAllowed: it names an instance that the policy does not allow.
        EndorsementCertificateMalformed: the name cannot be read.

    """
    try:
        if rules.gce_projects and (instance := _gce_instance(leaf)) is not None:
            return _verify_gce_instance(instance, provider_id, rules)
        if rules.domain_uuid_schemes and (uuid := _domain_uuid(leaf)) is not None:
            return _verify_domain(uuid, provider_id, rules)
    except ValueError as error:
        # `CertificateMalformed`, a text that is not UTF-8, or too few members.
        raise EndorsementCertificateMalformed(
            f"endorsement certificate: the name of the machine cannot be read{REMEDY}"
        ) from error
    return None


def read_machine_name(leaf: CertificateFields) -> str:
    """Return the machine that a certificate names, for operators; empty if it names none."""
    try:
        instance, uuid = _gce_instance(leaf), _domain_uuid(leaf)
        if instance is not None:
            return _instance_name(instance)
    except ValueError:
        return ""
    return "" if uuid is None else f"domain {uuid}"


def _gce_instance(leaf: CertificateFields) -> Sequence[Element] | None:
    """Return the members of the extension, `None` if the certificate has no such SEQUENCE."""
    extension = leaf.extensions.get(PROVIDER_ID_OID)
    if extension is None:
        return None
    element = single_element(extension.value)
    return children(element) if element[0] == SEQUENCE else None


def _verify_gce_instance(
    members: Sequence[Element], provider_id: str, rules: CertificateNameRules
) -> str:
    named = _instance_name(members)
    if named != provider_id:
        raise EndorsementCertificateOfOtherMachine(
            "the endorsement certificate names another machine", detail=named
        )
    if _gce_part(members[2]) not in rules.gce_projects:
        raise EndorsementCertificateNameNotAllowed(
            "the endorsement certificate names an instance of a project that the policy does not"
            " list",
            detail=named,
        )
    if not _is_production(members[5:]):
        raise EndorsementCertificateNameNotAllowed(
            "the endorsement certificate is that of a test TPM", detail=named
        )
    return named


def _instance_name(members: Sequence[Element]) -> str:
    zone, _, project, _, name, *_ = members
    return f"gce://{'/'.join(_gce_part(element) for element in (project, zone, name))}"


def _gce_part(element: Element) -> str:
    tag, content, _ = element
    text = content.decode("ascii")
    if tag != _UTF8_STRING or _GCE_PART.fullmatch(text) is None:
        raise CertificateMalformed("a part of the name of an instance is not a name")
    return text


def _is_production(rest: Sequence[Element]) -> bool:
    """Return whether the security properties say so; absent ones do not."""
    if not rest or rest[0][0] != _SECURITY_PROPERTIES:
        return False
    flags = [
        single_element(content)
        for tag, content, _ in children(single_element(rest[0][1]))
        if tag == _IS_PRODUCTION
    ]
    return [(tag, content) for tag, content, _ in flags] == [(BOOLEAN, b"\xff")]


def _domain_uuid(leaf: CertificateFields) -> str | None:
    """Return the UUID in the common name `<name>:<UUID>`, `None` if it has another form."""
    attributes = [
        children(attribute)
        for relative_name in children(single_element(leaf.subject))
        for attribute in children(relative_name)
    ]
    names = [value[1] for kind, value in attributes if oid(kind) == _COMMON_NAME]
    found = [_DOMAIN_NAME.fullmatch(name.decode()) for name in names]
    uuids = [match[1] for match in found if match is not None]
    return uuids[0] if len(names) == len(uuids) == 1 else None


def _verify_domain(uuid: str, provider_id: str, rules: CertificateNameRules) -> str:
    scheme, separator, rest = provider_id.partition("://")
    is_named = separator and scheme in rules.domain_uuid_schemes
    if not is_named or rest.rpartition("/")[2] != uuid:
        raise EndorsementCertificateOfOtherMachine(
            "the endorsement certificate names another machine", detail=f"domain {uuid}"
        )
    return uuid
