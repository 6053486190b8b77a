"""TLS to one API server: only its own CA is trusted, and the signer writes no key to a disk."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import IO

from signer.errors import KubeconfigRefused
from signer.kube.transport.kubeconfig import ClientCertificate, Connection


class ContentTooSlow(TimeoutError):
    """The content of an answer had begun at the end of its time."""


class DeadlineExceeded(TimeoutError):
    """An answer is not whole in time; unlike a silent server, this one may still send bytes."""


def client_context(connection: Connection) -> ssl.SSLContext:
    """Return a context that trusts only the connection's CA, with its client certificate if any.

    Raises `KubeconfigRefused` when OpenSSL cannot use them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A cluster's CA may be an intermediate one. It is trusted without its root, as by client-go.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=connection.ca)
    except ssl.SSLError as error:
        raise KubeconfigRefused("the server's CA must be a list of PEM certificates") from error
    if connection.certificate is not None:
        _load_client_certificate(context, connection.certificate)
    return context


def _load_client_certificate(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    try:
        load_chain(context, f"{certificate.certificate}\n{certificate.key}\n")
    except (ssl.SSLError, ValueError) as error:
        raise KubeconfigRefused("the client certificate and its key cannot be used") from error


def load_chain(context: ssl.SSLContext, pem: str) -> None:
    """Load a certificate with its chain and its key.

    The key reaches no disk on Linux; elsewhere it is in a private file meanwhile.
    Raises `ssl.SSLError` or `ValueError` when OpenSSL cannot use them.
    """
    with _private_file() as (file, name):
        file.write(pem)
        file.flush()
        context.load_cert_chain(name, password=_reject_encrypted_key)


@contextmanager
def _private_file() -> Iterator[tuple[IO[str], str]]:
    """Open a file, in memory if the system has such files. Yield it with its name.

    OpenSSL loads a chain from files only.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "w", encoding="ascii") as in_memory:
            yield in_memory, f"/proc/self/fd/{descriptor}"
    else:
        with NamedTemporaryFile("w", encoding="ascii") as temporary:
            yield temporary, temporary.name


def _reject_encrypted_key() -> str:
    """Raise, so that OpenSSL does not ask a terminal for the password of an encrypted key."""
    raise ValueError("an encrypted key is not accepted")
