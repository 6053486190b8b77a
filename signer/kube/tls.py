"""TLS to one API server: its own CA and nobody else's, and keys that never touch a disk."""

import math
import os
import ssl
import time
from typing import TYPE_CHECKING

from signer.errors import KubeconfigRefused
from signer.kube.kubeconfig import ClientCertificate, Connection

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


def deadline_socket(whole: float) -> type[ssl.SSLSocket]:
    """Return sockets that give each answer `whole` seconds, whatever their timeout.

    A timeout begins anew with each byte: a server that sends one now and then would hold its reader
    for ever, in the headers or in the content.
    """

    class Bounded(ssl.SSLSocket):
        _silence: float | None = None
        _until = math.inf

        def settimeout(self, value: float | None, /) -> None:
            # Called before each answer.
            self._silence, self._until = value, time.monotonic() + whole
            super().settimeout(value)

        def recv_into(
            self, buffer: "WriteableBuffer", nbytes: int | None = None, flags: int = 0
        ) -> int:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the answer takes too long")
            super().settimeout(left if self._silence is None else min(left, self._silence))
            return super().recv_into(buffer, nbytes, flags)

    return Bounded


def client_context(connection: Connection) -> ssl.SSLContext:
    """Trust exactly the connection's CA, and show its client certificate where it has one.

    Raises `KubeconfigRefused` when OpenSSL cannot use them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A cluster's authority may be an intermediate one; it is trusted as it stands, as by client-go.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=connection.ca)
    except ssl.SSLError as e:
        raise KubeconfigRefused("the server's CA is not a list of PEM certificates") from e
    if connection.certificate is not None:
        _load_client_certificate(context, connection.certificate)
    return context


def _load_client_certificate(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    # OpenSSL takes a chain from files only. A memfd is one that is nowhere but in memory.
    descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{certificate.certificate}\n{certificate.key}\n")
        file.flush()
        try:
            context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_reject_encrypted_key)
        except (ssl.SSLError, ValueError) as e:
            raise KubeconfigRefused("the client certificate and its key cannot be used") from e


def _reject_encrypted_key() -> str:
    """Keep OpenSSL from asking a terminal for the password of an encrypted key."""
    raise ValueError("an encrypted key is not taken")
