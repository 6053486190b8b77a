"""The AWS Security Token Service, as far as `AssumeRoleWithWebIdentity` needs it.

The answers have the form of the API Reference (API_AssumeRoleWithWebIdentity). They were not
recorded from the real service.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

from tests.fakes.api_server import Answering
from tests.fakes.ec2 import ACCESS_KEY, SECRET_KEY

ROLE = "arn:aws:iam::123456789012:role/team-a/endorsement-keys"
SESSION_TOKEN = "IQoJb3JpZ2luX2VjEXAMPLE//8="


@dataclass(slots=True)
class FakeSts:
    """Gives credentials of one role to those who have the token."""

    token: str
    lifetime: timedelta = timedelta(hours=1)
    calls: int = 0

    def handle(self, answering: Answering) -> None:
        self.calls += 1
        request = answering.server.requests[-1]
        assert "authorization" not in {name.lower() for name in request.headers}
        fields = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
        token = fields.pop("WebIdentityToken")
        assert fields == {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": ROLE,
            "RoleSessionName": "node-attestation-signer",
        }
        if token != self.token:
            give_error(answering, 400, "InvalidIdentityToken")
        else:
            answering.give(answer(datetime.now(UTC) + self.lifetime))


def answer(expires_at: datetime, **changes: str) -> bytes:
    """Return the answer with credentials; `changes` replace elements."""
    elements = {
        "SessionToken": SESSION_TOKEN,
        "SecretAccessKey": SECRET_KEY,
        "Expiration": expires_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "AccessKeyId": ACCESS_KEY,
        **changes,
    }
    credentials = "".join(f"      <{name}>{text}</{name}>\n" for name, text in elements.items())
    return (
        '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">\n'
        "  <AssumeRoleWithWebIdentityResult>\n"
        "    <SubjectFromWebIdentityToken>system:serviceaccount:a:b</SubjectFromWebIdentityToken>\n"
        "    <Audience>sts.amazonaws.com</Audience>\n"
        f"    <AssumedRoleUser><Arn>{ROLE}/s</Arn><AssumedRoleId>AROA:s</AssumedRoleId>"
        "</AssumedRoleUser>\n"
        f"    <Credentials>\n{credentials}    </Credentials>\n"
        "  </AssumeRoleWithWebIdentityResult>\n"
        "  <ResponseMetadata><RequestId>ad4156e9-bce1-11e2-82e6-example</RequestId>"
        "</ResponseMetadata>\n"
        "</AssumeRoleWithWebIdentityResponse>\n"
    ).encode()


def give_error(answering: Answering, status: int, code: str) -> None:
    """Answer with an error of STS."""
    content = (
        '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error>'
        f"<Type>Sender</Type><Code>{code}</Code><Message>Refused.</Message></Error>"
        "<RequestId>ad4156e9-bce1-11e2-82e6-example</RequestId></ErrorResponse>"
    )
    answering.give(content.encode(), status)
