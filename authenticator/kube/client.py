"""The requests of a node to the API server.

The client trusts and uses only what the exec info names: the address, the CA and no other, the TLS
server name, the proxy. The server may be hostile, so redirects are refused, responses are bounded,
and an object counts only if it has the name that was requested. Private keys are never written to
disk: OpenSSL reads only files, so it gets them from a memfd.
"""

import json
import logging
import os
import ssl
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlencode

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from authenticator.bounded_http import DEFAULT_HEADERS, bounded_pool, send_once
from authenticator.errors import (
    ApiResponseMalformed,
    ClientCertificateUnusable,
    ExecInfoInvalid,
)
from authenticator.kube import objects
from authenticator.kube.response_errors import error_for_exception, error_for_status
from authenticator.model import ApiCredential, Csr, CsrRequest, Deadline, KeyPair, Server, Token
from common.errors import ApiServerUnavailable, AttestationError

CSRS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SELF_SUBJECT_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELF_SUBJECT_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 20.0
WATCH_GRACE_SECONDS: Final = 5.0
"""How much longer than its timeoutSeconds a watch may be silent."""

HEADERS: Final = {
    **DEFAULT_HEADERS,
    "Accept": "application/json",
    "Content-Type": "application/json",
}
FORBIDDEN: Final = 403
CONFLICT: Final = 409
GONE: Final = 410
NOT_FOUND: Final = 404
MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one response or event: etcd stores objects of 1.5 MiB at most; JSON escapes add some."""

CHUNK_BYTES: Final = 64 * 1024
_logger = logging.getLogger(__name__)


class KubernetesApi:
    """A client of the API server with one credential, until a deadline."""

    def __init__(self, server: Server, requester: ApiCredential, deadline: Deadline) -> None:
        """Prepare to connect. Raises `ClientCertificateUnusable`, `ExecInfoInvalid`."""
        self._url = server.url
        self._deadline = deadline
        self._pool = bounded_pool(
            deadline.remaining,
            tls=_tls_context(server, requester),
            server_name=server.tls_server_name,
            proxy=server.proxy,
        )
        self._headers = dict(HEADERS)
        if isinstance(requester, Token):
            self._headers["Authorization"] = f"Bearer {requester.token}"

    def create(self, request: CsrRequest) -> Csr:
        """Create the CSR, or return the existing one of this name."""
        created = self._json("POST", CSRS, body=objects.encode_csr(request), allow=CONFLICT)
        if created is not None:
            return _require_name(objects.decode_csr(created), request.name)
        existing = self.get(request.name)
        if existing is None:
            raise ApiServerUnavailable(f"{request.name} existed, and was deleted since")
        return existing

    def get(self, name: str) -> Csr | None:
        """Return the CSR of that name, None if it does not exist."""
        document = self._json("GET", f"{CSRS}/{name}", allow=NOT_FOUND)
        return None if document is None else _require_name(objects.decode_csr(document), name)

    def wait_for_change(self, csr: Csr, seconds: float) -> Csr | None:
        """Watch this CSR from the known version; read it if the watch shows no change.

        A watch costs the API server little: it sends one object, when that changes.
        """
        for event in self._watch(csr, seconds):
            if event.get("type") in {"ADDED", "MODIFIED"}:
                return _require_name(objects.decode_csr(event.get("object")), csr.spec.name)
            break  # deleted, or the known version is too old to watch from
        return self._list_one(csr.spec.name)

    def self_subject_review(self) -> str | None:
        """Return the user name in a SelfSubjectReview; None when there is no such API (404)."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        review = self._json("POST", SELF_SUBJECT_REVIEWS, body=body, allow=NOT_FOUND)
        if review is None:
            return None
        try:
            return str(review["status"]["userInfo"]["username"])
        except (KeyError, TypeError):
            raise ApiResponseMalformed(
                "the API server's SelfSubjectReview has no user name"
            ) from None

    def server_time(self) -> float | None:
        """Return the time in the Date header of a response (RFC 9110, section 6.6.1)."""
        with self._send("GET", "/version", READ_SECONDS) as response:
            date = response.headers.get("Date")
        try:
            return parsedate_to_datetime(date or "").timestamp()
        except (ValueError, TypeError, OverflowError):
            return None

    def can_create_csrs(self) -> bool:
        """Return whether this requester may create CSRs, from a SelfSubjectAccessReview."""
        attributes = {
            "verb": "create",
            "group": "certificates.k8s.io",
            "resource": "certificatesigningrequests",
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        review = objects.require_object(self._json("POST", SELF_SUBJECT_ACCESS_REVIEWS, body=body))
        return objects.require_object(review.get("status")).get("allowed") is True

    def _list_one(self, name: str) -> Csr | None:
        """Read a CSR as a list of one, whose resourceVersion a watch can start from.

        The object's own resourceVersion can be too old for a watch: if it has not changed since the
        API server started, or if many other objects have changed since. Each watch would then end
        immediately.
        """
        document = self._json("GET", CSRS, parameters=_field_selector(name))
        csr = objects.decode_csr_list(document)
        return None if csr is None else _require_name(csr, name)

    def _json(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: object = None,
        allow: int = 0,
    ) -> Any:  # noqa: ANN401
        """Return the decoded response, None if its status is `allow`."""
        with self._request(
            method, path, READ_SECONDS, parameters=parameters, body=body, allow=allow
        ) as response:
            content = b"".join(self._chunks(response))
            return None if response.status == allow else objects.decode_json(content)

    def _watch(self, csr: Csr, seconds: float) -> Iterator[Mapping[str, object]]:
        """Yield the events of one watch until it ends or its connection breaks."""
        whole = max(1, round(self._deadline.clamp(seconds)))
        parameters = {
            "watch": "1",
            **_field_selector(csr.spec.name),
            "resourceVersion": csr.resource_version,
            "timeoutSeconds": str(whole),
        }
        silence = whole + WATCH_GRACE_SECONDS
        with self._request("GET", CSRS, silence, parameters=parameters, allow=GONE) as response:
            incomplete = b""
            for chunk in self._chunks(response):
                *lines, incomplete = (incomplete + chunk).split(b"\n")
                for line in lines:
                    yield objects.require_object(objects.decode_json(line))

    def _request(  # noqa: PLR0913 - what one HTTP request consists of
        self,
        method: str,
        path: str,
        silence: float,
        *,
        parameters: Mapping[str, str] | None = None,
        body: object = None,
        allow: int = 0,
    ) -> BaseHTTPResponse:
        """Send a request; return the response if its status is 200, 201 or `allow`, else raise."""
        response = self._send(method, path, silence, parameters=parameters, body=body)
        if response.status in {200, 201, allow}:
            return response
        with response:
            raise error_for_status(response.status, b"".join(self._chunks(response)))

    def _send(
        self,
        method: str,
        path: str,
        silence: float,
        *,
        parameters: Mapping[str, str] | None = None,
        body: object = None,
    ) -> BaseHTTPResponse:
        """Send a request; return the response, whatever its status."""
        query = "" if parameters is None else f"?{urlencode(parameters)}"
        try:
            response = send_once(
                self._pool,
                method,
                f"{self._url}{path}{query}",
                headers=self._headers,
                timeouts=(self._deadline.clamp(CONNECT_SECONDS), self._deadline.clamp(silence)),
                body=None if body is None else json.dumps(body).encode(),
            )
        except (HTTPError, HTTPException, OSError) as error:
            raise self._error_without_response(error) from error
        _logger.debug("%s %s: %d", method, path, response.status)
        return response

    def _error_without_response(self, error: Exception) -> AttestationError:
        """Return the error for a request without response; at the deadline raise DeadlinePassed."""
        self._deadline.clamp(CONNECT_SECONDS)
        return error_for_exception(error)

    def _chunks(self, response: BaseHTTPResponse) -> Iterator[bytes]:
        """Yield the body, one read of the socket each, within size limit and deadline.

        Nothing is decompressed: identity was requested, and a small body could inflate to a huge
        one.
        """
        size = 0
        while True:
            try:
                chunk = response.read1(CHUNK_BYTES, decode_content=False)
            except (HTTPError, OSError, HTTPException) as error:
                raise self._error_without_response(error) from error
            if not chunk:
                return
            size += len(chunk)
            if size > MAX_RESPONSE_BYTES:
                raise ApiResponseMalformed("the API server's response is too large")
            yield chunk
            self._deadline.clamp(CONNECT_SECONDS)


def _require_name(csr: Csr, name: str) -> Csr:
    """Return the CSR if it has this name.

    Any other name is text of a server that may be hostile, and would get into messages, logs and
    run records.
    """
    if csr.spec.name != name:
        raise ApiResponseMalformed("the API server returned another object than the requested one")
    return csr


def _field_selector(name: str) -> Mapping[str, str]:
    return {"fieldSelector": f"metadata.name={name}"}


def _tls_context(server: Server, requester: ApiCredential) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Every certificate of the CA bundle is a trust anchor, as in Go.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _load_authorities(context, server)
    if isinstance(requester, KeyPair):
        try:
            _load_client_certificate(context, requester)
        except (ssl.SSLError, OSError) as error:
            raise ClientCertificateUnusable(
                "the client certificate and its key cannot be read or do not belong together"
            ) from error
    return context


def _load_authorities(context: ssl.SSLContext, server: Server) -> None:
    """Trust each certificate of the CA bundle that OpenSSL can read.

    Raises `ExecInfoInvalid`: OpenSSL can read none of them.
    """
    authorities = server.authorities()
    unreadable = 0
    for authority in authorities:
        try:
            context.load_verify_locations(cadata=authority)
        except (ssl.SSLError, ValueError):
            unreadable += 1
    if unreadable == len(authorities):
        raise ExecInfoInvalid(
            "no certificate in the CA of the cluster can be read: correct the kubeconfig"
        )
    if unreadable:
        _logger.warning(
            "%d of the %d certificates in the CA of the cluster cannot be read, and are ignored",
            unreadable,
            len(authorities),
        )


def _load_client_certificate(context: ssl.SSLContext, pair: KeyPair) -> None:
    descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb", buffering=0) as memory:
        memory.write(pair.certificate + pair.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_reject_encrypted_key)


def _reject_encrypted_key() -> str:
    """Return no password: without this OpenSSL asks the terminal for that of an encrypted key."""
    return ""
