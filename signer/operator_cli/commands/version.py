"""`version`: the version of this program, without a connection."""

from importlib.metadata import version

from signer.operator_cli.errors import EXIT_OK
from signer.operator_cli.session import Session


def run(session: Session) -> int:
    """Print the version."""
    session.show_document({"version": version("node-attestation")})
    return EXIT_OK
