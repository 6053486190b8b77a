"""Reads PCR values that the vendor of a boot image predicts, and puts them into a policy.

An import of a vendor supersedes the one before: values that the vendor no longer predicts get an
end, so that nodes with the former image can be updated until then. Values that the policy had
already belong to no import. Sources: the README of Bottlerocket's pcrsys; the output of
compute-pcrs; systemd-measure(1), `calculate --json`.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from common.formats import strict_json
from common.tpm.constants import BANKS as BANK_ALGORITHMS
from common.tpm.constants import DIGEST_SIZES, PCR_COUNT
from signer.policy.changes.edits import (
    ReviewedPolicy,
    Spec,
    Value,
    listed_digests,
    set_end,
    with_values,
    without_values,
)
from signer.policy.policy import BANKS

_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2})+")
_INDEX: Final = re.compile(r"[0-9]{1,2}")
_COMPUTED_BANK: Final = "sha256"
"""The bank of compute-pcrs, which names none."""
_FORMS: Final = "what Bottlerocket's pcrsys, compute-pcrs or `systemd-measure calculate` prints"

Values = frozenset[Value]


class PredictionsInvalid(ValueError):
    """The predictions cannot be read, or do not fit the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What an import makes of a policy."""

    spec: Spec
    recorded: Values
    """All values that the policy has because of imports of this vendor."""
    left_out: frozenset[tuple[str, ...]]
    """Banks and numbers of predicted PCRs for which the policy has no list."""


def read_predictions(data: bytes) -> Values:
    """Read a file of predictions. Raises `PredictionsInvalid`."""
    try:
        document = strict_json.take_object(strict_json.load(data))
        values = frozenset(_values(document))
    except strict_json.JsonMalformed as error:
        raise PredictionsInvalid(f"must be {_FORMS}: {error}") from None
    if not values:
        raise PredictionsInvalid(f"must be {_FORMS}: no value is in it")
    return values


def import_values(  # noqa: PLR0913 - each by name
    reviewed: ReviewedPolicy,
    recorded: Values,
    predicted: Values,
    *,
    others: Values,
    now: datetime,
    until: datetime,
) -> Import:
    """Return the policy with the predicted values, and with an end for those of former imports.

    Predicted values lose their end. Former ones whose end has passed are removed. `others` are the
    values of imports of other vendors, which do not end.

    Raises `PredictionsInvalid`: the policy lists none of the PCRs, or lists a value that would end
    for another PCR or other Machines too.
    """
    lists = {w: each for w, each in reviewed.lists(None).items() if w[0] in BANKS}
    fitting = frozenset(value for value in predicted if value.where in lists)
    if not fitting:
        raise PredictionsInvalid("the policy allows no values of a predicted PCR in this bank")
    present = frozenset(Value(w, digest) for w, digests in lists.items() for digest in digests)
    former, ended = (recorded & present) - fitting - others, reviewed.ended(now)
    removed = frozenset(value for value in former if value.digest in ended)
    ends = {digest.hex() for digest in reviewed.policy.pcrs.until}
    superseded = frozenset(value for value in former if value.digest not in ends)
    added = fitting - present
    spec = with_values(without_values(reviewed.spec, None, removed), None, added)
    if listed_digests(without_values(spec, None, superseded)) & _digests(superseded):
        raise PredictionsInvalid(
            "the policy allows a superseded value for another PCR or for other Machines, where it"
            " would end, too: remove it from the policy first"
        )
    set_end(spec, _digests(removed) - listed_digests(spec), None)
    set_end(spec, _digests(fitting), None)
    set_end(spec, _digests(superseded), until)
    return Import(
        spec=spec,
        recorded=added | (fitting & (recorded | others)) | (former - removed),
        left_out=frozenset(value.where for value in predicted - fitting),
    )


def _values(document: Mapping[str, object]) -> Iterable[Value]:
    if "pcrs" not in document:
        for bank in document:
            for entry in map(strict_json.take_object, strict_json.take_array(document[bank])):
                if "pol" in entry:
                    raise PredictionsInvalid(
                        "the file has policy digests, which the vendor signs into the image, and no"
                        " values: use pcrs.signedBy"
                    )
                yield _value(bank, entry.get("pcr"), entry.get("hash"))
    elif isinstance(document["pcrs"], list):
        for entry in map(strict_json.take_object, document["pcrs"]):
            yield _value(_COMPUTED_BANK, entry.get("id"), entry.get("value"))
    else:
        for index, banks in strict_json.take_object(document["pcrs"]).items():
            for bank, digests in strict_json.take_object(banks).items():
                for digest in strict_json.take_array(digests):
                    yield _value(bank, int(index) if _INDEX.fullmatch(index) else None, digest)


def _value(bank: str, index: object, digest: object) -> Value:
    if bank not in BANKS:
        raise PredictionsInvalid(f"has a bank that no policy can have: use {', '.join(BANKS)}")
    if type(index) is not int or not 0 <= index < PCR_COUNT:
        raise PredictionsInvalid(f"must have PCR numbers from 0 to {PCR_COUNT - 1}")
    text = strict_json.take_str(digest, _HEX)
    if len(text) != 2 * DIGEST_SIZES[BANK_ALGORITHMS[bank]]:
        raise PredictionsInvalid("must have digests of the size of their bank")
    return Value((bank, str(index)), text.lower())


def _digests(values: Collection[Value]) -> frozenset[str]:
    return frozenset(value.digest for value in values)
