"""What the Lease of a replica with a policy file says of its Clusters."""

import pytest

from signer.inventory.replica_records.replica_leases import decode_states, encode_states
from signer.kinds.decode import MAX_TEXT

LONG = {"namespace": "team-a", "name": "c1", "state": "Forbidden", "message": 'm"' * 128}


def test_short_list_is_complete() -> None:
    states = {"selectedClusters": 7, "clustersLeftOut": 0, "clusters": [LONG]}
    assert decode_states(encode_states([LONG], 7)) == states


def test_long_list_fits_into_a_text_and_says_that_it_is_not_complete() -> None:
    """A Lease that cannot be read would end the sharing of Clusters."""
    text = encode_states([LONG] * 100, 100)
    states = decode_states(text)
    assert len(text) <= MAX_TEXT
    assert 5 < len(states["clusters"]) < 100
    assert states["clustersLeftOut"] == 100 - len(states["clusters"])


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_other_text_says_nothing(text: str) -> None:
    assert decode_states(text) == {}
