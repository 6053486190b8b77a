"""The marker of the claims: a ConfigMap in the workload cluster (`signer.claims.marker`)."""

from datetime import datetime
from typing import Final

from common.formats.strict_json import format_time
from signer.claims.marker import Marker, Newest
from signer.kinds.decode import Fields, Source, Time, decode
from signer.kinds.resources import CONFIG_MAPS
from signer.kube.events import COMPONENT
from signer.kube.transport.client import ApiClient
from signer.seams import WentBack

_NAMESPACE: Final = "kube-system"
_NAME: Final = "node-attestation-marker"
_PATH: Final = CONFIG_MAPS.object_path(_NAME, _NAMESPACE)


class _Data(Fields):
    last_attested: Time | None = None
    not_after: Time | None = None
    went_back_at: Time | None = None
    went_back_until: Time | None = None


class _ConfigMap(Fields):
    data: _Data | None = None


class MarkerClient:
    """Reads and writes the marker of one workload cluster."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def read(self) -> Marker:
        """Return the marker, an empty one if there is none. Raises `ApiServerUnavailable`."""
        response = self._api.find(_PATH)
        return Marker() if response is None else response.read(_read)

    def write(self, marker: Marker) -> None:
        """Write the marker. Raises `ApiServerUnavailable`."""
        newest, went_back = marker.newest, marker.went_back
        times: dict[str, datetime] = {}
        if newest is not None:
            times |= {"lastAttested": newest.last_attested, "notAfter": newest.not_after}
        if went_back is not None:
            times |= {"wentBackAt": went_back.at, "wentBackUntil": went_back.until}
        body = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {"name": _NAME, "namespace": _NAMESPACE},
            "data": {name: format_time(time) for name, time in times.items()},
        }
        self._api.apply(_PATH, body, manager=COMPONENT, accepted=(200, 201))


def _read(source: Source) -> Marker:
    data = decode(source, _ConfigMap).data or _Data()
    newest = went_back = None
    if data.last_attested is not None and data.not_after is not None:
        newest = Newest(last_attested=data.last_attested, not_after=data.not_after)
    if data.went_back_at is not None and data.went_back_until is not None:
        went_back = WentBack(at=data.went_back_at, until=data.went_back_until)
    return Marker(newest=newest, went_back=went_back)
