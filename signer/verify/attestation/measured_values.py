"""What a claim keeps of a boot, so that an operator can review and accept it."""

from signer.kinds.attested_node import MeasuredValues
from signer.policy.policy import MACHINE_PCR, MACHINE_PCR_BANK, Policy
from signer.verify.attestation.measured_boot import MeasuredBoot
from signer.verify.attestation.quoted_pcrs import Pcrs


def describe_boot(pcrs: Pcrs, boot: MeasuredBoot | None, policy: Policy) -> MeasuredValues:
    """Return what a policy can have lists for.

    `pcrs` are the quoted values. No list has the values that a vendor signs, nor the value
    of PCR 6 where it names the machine, so they are left out.
    """
    unlisted = {
        (bank, index)
        for rule in policy.pcrs.signed_by
        for bank, indices in rule.pcrs.items()
        for index in indices
    }
    if policy.pcrs.names_machine:
        unlisted.add((MACHINE_PCR_BANK, MACHINE_PCR))
    listed = {
        bank: {str(i): v.hex() for i, v in values.items() if (bank, i) not in unlisted}
        for bank, values in pcrs.items()
    }
    boot = boot or MeasuredBoot()
    return MeasuredValues(
        pcrs={bank: values for bank, values in listed.items() if values},
        firmware=boot.firmware,
        secure_boot=boot.secure_boot,
        platform_keys=_texts(boot.platform_keys),
        signature_databases=_texts(boot.signature_databases),
        boot_loaders=_texts(boot.boot_loaders),
    )


def _texts(digests: frozenset[bytes]) -> tuple[str, ...]:
    return tuple(sorted(digest.hex() for digest in digests))
