"""The query API of Amazon EC2, as far as `GetInstanceTpmEkPub` needs it.

The answers have the form of the API Reference (API_GetInstanceTpmEkPub, "Error codes"). They were
not recorded from the real service.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from tests.fakes.api_server import Answering, Request

ACCESS_KEY = "AKIDEXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
_AUTHORIZATION = re.compile(
    rf"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/[0-9]{{8}}/(?P<region>[a-z0-9-]+)/ec2/aws4_request,"
    r" SignedHeaders=(?P<headers>[a-z;-]+), Signature=[0-9a-f]{64}"
)


@dataclass(slots=True)
class FakeEc2:
    """Answers for the instances of one region, and refuses what is not signed."""

    region: str = "eu-central-1"
    keys: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """DER by instance ID and key type."""
    signed_headers: str = "content-type;host;x-amz-date"

    def handle(self, answering: Answering) -> None:
        request = answering.server.requests[-1]
        fields = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
        instance, key_type = fields.pop("InstanceId"), fields.pop("KeyType")
        assert fields == {
            "Action": "GetInstanceTpmEkPub",
            "Version": "2016-11-15",
            "KeyFormat": "der",
        }
        if not self._is_signed(request):
            give_error(answering, 401, "AuthFailure")
        elif all(known != instance for known, _ in self.keys):
            give_error(answering, 400, "InvalidInstanceID.NotFound")
        elif (instance, key_type) not in self.keys:
            give_error(answering, 400, "UnsupportedOperation")
        else:
            answering.give(answer(instance, key_type, self.keys[instance, key_type]))

    def _is_signed(self, request: Request) -> bool:
        matched = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
        expected = (self.region, self.signed_headers)
        return matched is not None and (matched["region"], matched["headers"]) == expected


def answer(instance: str, key_type: str, der: bytes, **changes: str) -> bytes:
    """Return the answer about one key; `changes` replace elements."""
    elements: Mapping[str, str] = {
        "requestId": "59dbff89-35bd-4eac-99ed-be587EXAMPLE",
        "instanceId": instance,
        "keyFormat": "der",
        "keyType": key_type,
        "keyValue": base64.encodebytes(der).decode(),
        **changes,
    }
    content = "".join(f"    <{name}>{text}</{name}>\n" for name, text in elements.items())
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<GetInstanceTpmEkPubResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">\n'
        f"{content}</GetInstanceTpmEkPubResponse>\n"
    ).encode()


def give_error(answering: Answering, status: int, code: str) -> None:
    """Answer with an error of EC2."""
    content = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Response><Errors><Error><Code>{code}</Code><Message>Refused.</Message></Error></Errors>"
        "<RequestID>ea966190-f9aa-478e-9ede-example</RequestID></Response>"
    )
    answering.give(content.encode(), status)
