"""The API server over HTTPS: the node's few calls, and nothing of this machine's surroundings.

Only what the exec info names is trusted and used: its address, its CA (and no other), its TLS
server name, its proxy. `requests` takes nothing from the environment here. Redirects are refused
and answers are bounded, since the server may be hostile. Keys never get a name on disk: OpenSSL,
which only reads files, reads them from memory that has a file's interface.
"""

import os
import ssl
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any, Final

import requests
from urllib3.exceptions import HTTPError

from authenticator.bounded_http import bounded_session
from authenticator.errors import ApiResponseMalformed, ExecInfoInvalid, Unauthorized
from authenticator.kube import objects
from authenticator.kube.errors import error_for_exception, error_for_status
from authenticator.model import ApiCredential, Csr, CsrRequest, Deadline, KeyPair, Server, Token
from common.errors import ApiServerUnavailable, AttestationError

CSRS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SELF_SUBJECT_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELF_SUBJECT_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 20.0
WATCH_GRACE_SECONDS: Final = 5.0
"""How much longer than asked for a watch may stay silent before its connection counts as dead."""

HEADERS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "kubelet-authenticator-tpm",
}
CONFLICT: Final = 409
GONE: Final = 410
NOT_FOUND: Final = 404
MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one answer or one event: etcd keeps no object of more than 1.5 MiB, and JSON escapes."""

CHUNK_BYTES: Final = 64 * 1024


class KubernetesApi:
    """The API server, asked as one requester, until a deadline."""

    def __init__(self, server: Server, requester: ApiCredential, deadline: Deadline) -> None:
        """Make ready to connect. Raises ExecInfoInvalid, BootstrapCredentialUnusable."""
        self._url = server.url
        self._deadline = deadline
        self._session = bounded_session(
            deadline.remaining,
            tls=_tls_context(server, requester),
            server_name=server.tls_server_name,
        )
        self._session.headers.update(HEADERS)
        if isinstance(requester, Token):
            self._session.headers["Authorization"] = f"Bearer {requester.token}"
        if server.proxy is not None:
            self._session.proxies = {"https": server.proxy}

    def create(self, request: CsrRequest) -> Csr:
        """File the CSR, or return the one that has this name already."""
        created = self._json("POST", CSRS, body=objects.encode_csr(request), but=CONFLICT)
        found = self.get(request.name) if created is None else objects.decode_csr(created)
        if found is None:
            raise ApiServerUnavailable(f"{request.name} was there, and is not any more")
        return found

    def get(self, name: str) -> Csr | None:
        """Return the CSR of that name, None when there is none."""
        found = self._json("GET", f"{CSRS}/{name}", but=NOT_FOUND)
        return None if found is None else objects.decode_csr(found)

    def wait_for_change(self, csr: Csr, seconds: float) -> Csr | None:
        """Watch this one CSR from the version that is known; read it when nothing was seen.

        A watch is little work for the API server: it tells of one object, when it changes.
        """
        for event in self._watch(csr, seconds):
            if event.get("type") in {"ADDED", "MODIFIED"}:
                return objects.decode_csr(event.get("object"))
            break  # deleted, or the known version is too old to go on from
        return self._listed(csr.spec.name)

    def self_subject_review(self) -> str:
        """Ask for a SelfSubjectReview."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        review = self._json("POST", SELF_SUBJECT_REVIEWS, body=body)
        try:
            return str(review["status"]["userInfo"]["username"])
        except (KeyError, TypeError):
            raise ApiResponseMalformed("the API server's SelfSubjectReview names nobody") from None

    def server_date(self) -> str | None:
        """Return the Date header of an answer, for a look at the clocks."""
        with self._request("GET", "/version", READ_SECONDS) as response:
            date: str | None = response.headers.get("Date")
            return date

    def can_create_csrs(self) -> bool:
        """Ask whether this requester may create CSRs (SelfSubjectAccessReview)."""
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
        review = self._json("POST", SELF_SUBJECT_ACCESS_REVIEWS, body=body)
        return (
            objects.require_object(objects.require_object(review).get("status")).get("allowed")
            is True
        )

    def _listed(self, name: str) -> Csr | None:
        """Read a CSR as a list of one, whose version a watch can go on from.

        Its own is too old for that when it was not changed since the API server's start, or while
        many others were: each watch would end at once.
        """
        return objects.decode_csr_list(self._json("GET", CSRS, parameters=_only(name)))

    def _json(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: object = None,
        but: int = 0,
    ) -> Any:  # noqa: ANN401
        """Return the answer, None when its status is `but`."""
        with self._request(
            method, path, READ_SECONDS, parameters=parameters, body=body, but=but
        ) as response:
            content = b"".join(self._chunks(response))
            return None if response.status_code == but else objects.decode_json(content)

    def _watch(self, csr: Csr, seconds: float) -> Iterator[Mapping[str, object]]:
        """Yield the events of one watch, until it ends, breaks or is silent for too long."""
        whole = max(1, round(self._deadline.clamp(seconds)))
        parameters = {
            "watch": "1",
            **_only(csr.spec.name),
            "resourceVersion": csr.resource_version,
            "timeoutSeconds": str(whole),
        }
        silence = whole + WATCH_GRACE_SECONDS
        with self._request("GET", CSRS, silence, parameters=parameters, but=GONE) as response:
            rest = b""
            for chunk in self._chunks(response):
                *lines, rest = (rest + chunk).split(b"\n")
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
        but: int = 0,
    ) -> requests.Response:
        """Send one request; return an answer that says yes, or whose status is `but`."""
        timeouts = (self._deadline.clamp(CONNECT_SECONDS), self._deadline.clamp(silence))
        try:
            response = self._session.request(
                method,
                self._url + path,
                params=parameters,
                json=body,
                timeout=timeouts,
                allow_redirects=False,
                stream=True,
            )
        except (requests.exceptions.RequestException, HTTPError, OSError) as error:
            raise self._lost(error) from error
        if response.status_code in {200, 201, but}:
            return response
        with response:
            raise error_for_status(response.status_code, b"".join(self._chunks(response)))

    def _lost(self, error: Exception) -> AttestationError:
        """Name a call that got no answer; silence until the deadline is no outage."""
        self._deadline.clamp(CONNECT_SECONDS)
        return error_for_exception(error)

    def _chunks(self, response: requests.Response) -> Iterator[bytes]:
        """Yield the answer as it comes: one read of the socket each, within limit and deadline.

        Not decoded: nothing compressed was asked for, and a little of it may inflate to a lot.
        """
        size = 0
        while True:
            try:
                chunk: bytes = response.raw.read1(CHUNK_BYTES, decode_content=False)
            except (HTTPError, OSError, HTTPException) as error:
                raise self._lost(error) from error
            if not chunk:
                return
            size += len(chunk)
            if size > MAX_RESPONSE_BYTES:
                raise ApiResponseMalformed("the API server's answer is too large")
            yield chunk
            self._deadline.clamp(CONNECT_SECONDS)


def _only(name: str) -> Mapping[str, str]:
    return {"fieldSelector": f"metadata.name={name}"}


def _tls_context(server: Server, requester: ApiCredential) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go does: every one is an anchor
    try:
        context.load_verify_locations(cadata=server.ca)
    except (ssl.SSLError, ValueError) as error:
        raise ExecInfoInvalid("the cluster's CA cannot be read: correct kubeconfig") from error
    if isinstance(requester, KeyPair):
        try:
            _load_pair(context, requester)
        except (ssl.SSLError, OSError) as error:
            raise Unauthorized(
                "a client certificate and its key cannot be read, or do not belong together"
            ) from error
    return context


def _load_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb", buffering=0) as memory:
        memory.write(pair.certificate + pair.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)


def _no_password() -> str:
    """Keep OpenSSL from asking a terminal for the password of an encrypted key."""
    return ""
