"""Reads and encodes what a node measured, as AttestedNodes have it."""

from typing import Annotated, Any

import msgspec

from signer.kinds.attested_node import MeasuredValues
from signer.kinds.decode import MAX_ENTRIES, Fields, MaybeText, Text, Texts, texts

_Values = Annotated[dict[str, Text], msgspec.Meta(max_length=MAX_ENTRIES)]


class MeasuredFields(Fields):
    """`measured` of an AttestedNode and of its last refusal."""

    pcrs: Annotated[dict[str, _Values], msgspec.Meta(max_length=MAX_ENTRIES)] | None = None
    firmware: MaybeText = None
    secure_boot: bool | None = None
    platform_keys: Texts = None
    signature_databases: Texts = None
    boot_loaders: Texts = None


def read_measured(fields: MeasuredFields | None) -> MeasuredValues | None:
    """Return the values, `None` if there are none.

    The signer writes only a printable version. A tenant wrote any other one, and an operator would
    see its lines in a question. So it is left out.
    """
    if fields is None:
        return None
    firmware = fields.firmware or ""
    return MeasuredValues(
        pcrs=fields.pcrs or {},
        firmware=firmware if firmware.isprintable() else "",
        secure_boot=fields.secure_boot,
        platform_keys=texts(fields.platform_keys),
        signature_databases=texts(fields.signature_databases),
        boot_loaders=texts(fields.boot_loaders),
    )


def encode_measured(values: MeasuredValues) -> dict[str, Any]:
    """Return `measured`, without what is not known."""
    fields = {
        "pcrs": {bank: dict(by_index) for bank, by_index in values.pcrs.items()},
        "firmware": values.firmware,
        "secureBoot": values.secure_boot,
        "platformKeys": list(values.platform_keys),
        "signatureDatabases": list(values.signature_databases),
        "bootLoaders": list(values.boot_loaders),
    }
    return {key: value for key, value in fields.items() if value is False or value}
