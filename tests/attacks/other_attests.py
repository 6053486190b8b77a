"""What a restricted key signs besides quotes."""

from common.tpm.reader import tpm2b
from tests.builders.scenario import Scenario


def quoted(scenario: Scenario) -> bytes:
    """Return the body of a quote, which the attacker writes to certified memory."""
    return scenario.attest().encode()[101:]


def nv(scenario: Scenario) -> bytes:
    """TPMS_NV_CERTIFY_INFO: indexName, offset and contents of the attacker's choice."""
    return tpm2b(b"\0\x0b" + bytes(32)) + b"\0\0" + tpm2b(quoted(scenario))
