"""The parsers of the node: input of client-go, its disk, the API server and providers."""

import base64
import contextlib
import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from authenticator import launcher
from authenticator.config import bootstrap_credential, exec_info, invocation, kubeconfig
from authenticator.config.setting_table import SETTINGS
from authenticator.config.settings import resolve
from authenticator.errors import (
    ApiResponseMalformed,
    BootstrapCredentialUnusable,
    ConfigurationInvalid,
    ExecInfoInvalid,
    KubeconfigUnusable,
    ProviderAnswerInvalid,
    ProviderUnavailable,
    StateCorrupted,
)
from authenticator.kube import objects
from authenticator.model import Deadline
from authenticator.providers import registry, vsphere
from authenticator.providers.aws import TOKEN_TTL, Aws
from authenticator.providers.azure import Azure
from authenticator.providers.cloud_init import Equinix, Metal3
from authenticator.providers.file import File
from authenticator.providers.gce import Gce
from authenticator.providers.metadata import MetadataResponse, MetadataService
from authenticator.providers.openstack import OpenStack
from authenticator.providers.provider import Provider
from authenticator.state import credential
from authenticator.state.directory import StateDirectory
from authenticator.state.entries import FORMAT
from authenticator.state.store import COOLDOWN, LAST_SERVED, PENDING, RUNS, FileStore
from authenticator.tpm.nv_certificates import split_chain
from tests.builders import credentials
from tests.fakes.clock import FakeClock
from tests.fuzz.mutations import Form
from tests.fuzz.record_targets import CSR, kubeconfigs
from tests.fuzz.target import Refused, Target, directory, file
from tests.fuzz.verify_targets import leaves

PROVIDER_ERRORS = (ProviderUnavailable, ProviderAnswerInvalid)


def _exec_info(data: bytes) -> None:
    """Parse the exec info, then its settings, and check the types of accepted values."""
    info = exec_info.parse_exec_info(data)
    assert info.server.url.lower().startswith("https://")
    assert info.server.ca
    settings = resolve(info.settings, {}, "worker-1")
    assert settings.node_name
    assert settings.timeout_seconds > 0
    assert settings.state_dir.is_absolute()


def _exec_infos() -> list[bytes]:
    pem = base64.b64encode(credentials.CERTIFICATE).decode()
    config = {
        "nodeName": "worker-1",
        "providerID": "a://1",
        "provider": "file:/etc/identity",
        "stateDir": "/var/lib/a",
        "tcti": "swtpm",
        "endorsementKeyType": "rsa",
        "timeoutSeconds": 60,
        "expirationSeconds": "3600",
        "eventLogFile": "/a",
    }
    assert config.keys() <= {setting.key for setting in SETTINGS}
    cluster = {
        "server": "https://api.example:6443/prefix",
        "certificate-authority-data": pem,
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy.example:3128",
        "config": config,
    }
    return [
        exec_info.encode_as_client_go(cluster, version)
        for version in sorted(exec_info.API_VERSIONS)
    ]


def _credential(data: bytes) -> None:
    pair = credential.decode(data).key_pair
    assert pair.key.startswith(credential.KEY_BEGIN)
    assert pair.key.endswith(credential.KEY_END)


def _credential_intact(data: bytes) -> None:
    """Add a valid checksum to the input, which random damage never has."""
    _credential(_with_checksum(data))


def _launched(data: bytes) -> None:
    """Render the input as the launcher does. Its errors lead to the full program."""
    content = _with_checksum(data)
    made_for = tuple(content.split(b"\n", 4)[2:4])
    try:
        printed, _ = launcher.render(content, (made_for[0], made_for[1]), credentials.DAY)
    except (ValueError, LookupError) as error:
        raise Refused from error
    assert printed.startswith(b'{"kind":"ExecCredential","apiVersion":"')
    assert printed.endswith(b'"}}\n')


def _with_checksum(data: bytes) -> bytes:
    check = int.from_bytes(data, "big") % credential.CHECK_MODULUS
    return b"%s\n%d\n%s" % (credential.MAGIC, check, data)


def _credentials() -> list[bytes]:
    made = credentials.make(credentials.DAY, arguments=("--node-name", "worker-1"))
    return [credential.encode(made), credential.encode(credentials.make(credentials.DAY))]


def _contents() -> list[bytes]:
    return [content.split(b"\n", 2)[2] for content in _credentials()]


def _state(data: bytes) -> None:
    """Write the input into each state file. Loading them never raises."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        data = json.dumps({"format": FORMAT, "entries": [json.loads(data)]}).encode()
    for name in (PENDING, COOLDOWN, RUNS, LAST_SERVED):
        file(name, data)
    with StateDirectory(directory()) as opened:
        store = FileStore(opened, FakeClock())
        found = (store.pending_exchanges(), store.cooldowns(), store.run_records())
        store.is_repeat_call(1, 1)
    if not any(found):
        raise Refused


def _states() -> list[bytes]:
    pending = {
        "fingerprint": "digest",
        "boot_id": "boot-1",
        "started_at": 12.5,
        "offer_name": "kubelet-tpm-1",
        "answer_name": "kubelet-tpm-2",
        "key": "Ynl0ZXM=",
        "offer": "Ynl0ZXM=",
        "offer_uid": "uid",
        "challenge": "{}",
        "challenge_seen": 13.0,
        "answer": None,
    }
    cooldown = {
        "boot_id": "boot-1",
        "until": 99.5,
        "failures": 2,
        "reason": "Denied",
        "message": "no",
        "fingerprint": "digest",
        "clock_offset": 0.5,
    }
    files = [json.dumps(members).encode() for members in (pending, cooldown)]
    return [*files, b'{"a": 1}\n{"b": 2}\n']


def _bootstrap(data: bytes) -> None:
    bootstrap_credential.load_bootstrap_credential(file("bootstrap.conf", data))


def _by_hand(data: bytes) -> None:
    """Find the exec call in the kubelet's kubeconfig, and read it as if client-go had made it."""
    found = invocation.call_of_kubeconfig(kubeconfig.load(file("kubelet.conf", data)))
    _exec_info(found.exec_info)


def _kubelet_kubeconfigs() -> list[bytes]:
    document = yaml.safe_load(kubeconfigs()[0])
    stanza = {"apiVersion": "client.authentication.k8s.io/v1", "args": ["--node-name=worker-1"]}
    document["users"][0]["user"] = {"exec": stanza}
    extension = {"name": invocation.EXEC_EXTENSION, "extension": {"nodeName": "worker-1"}}
    document["clusters"][0]["cluster"]["extensions"] = [extension]
    return [yaml.safe_dump(document).encode()]


def _csr(data: bytes) -> None:
    found = objects.decode_csr(objects.decode_json(data))
    assert objects.encode_csr(found.spec)


def _require_identity(provider: Provider) -> None:
    """Get the identity and check it, as `registry.query_provider` does."""
    assert registry._checked(provider.identity(Deadline(FakeClock(), 60.0))).provider_id


def _from_file(make: Callable[[Path], Provider]) -> Callable[[bytes], None]:
    return lambda data: _require_identity(make(file("identity", data)))


def _from_service(
    make: Callable[[], Provider], headers: Mapping[str, str]
) -> Callable[[bytes], None]:
    """Answer each request with the next part of the input, then with 404.

    NUL separates the parts.
    """

    def run(data: bytes) -> None:
        parts = iter(data.split(b"\0"))

        def find(*_: object, **__: object) -> MetadataResponse | None:
            part = next(parts, None)
            # As `MetadataService` decodes a response
            text = None if part is None else _text(part)
            return None if text is None else MetadataResponse(text=text, headers=headers)

        with patch.object(MetadataService, "get_optional", find):
            _require_identity(make())

    return run


def _text(part: bytes) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError as error:
        raise Refused from error


def _vsphere(data: bytes) -> None:
    """Use the parts of the input as serial number, encoding and metadata."""
    serial, _, remainder = data.partition(b"\0")
    encoding, _, metadata = remainder.partition(b"\0")
    values = {"guestinfo.metadata": metadata, "guestinfo.metadata.encoding": encoding}
    tool = file("vmware-rpctool", b"")
    file("product_serial", serial)
    with patch.object(vsphere, "_guestinfo", lambda _tool, key, _deadline: values[key]):
        _require_identity(vsphere.VSphere("", dmi=directory(), tools=(tool,)))


def _virtual_machines() -> list[bytes]:
    serial = b"VMware-42 03 94 2f ce 98 3f 27-45 5c 46 3d 34 b8 af 41\n"
    metadata = b'instance-id: "fleet-md-0"\nlocal-hostname: "fleet-md-0"\n'
    zipped = base64.b64encode(gzip.compress(metadata, mtime=0))
    coded = base64.b64encode(metadata)
    forms = ((b"gzip+base64", zipped), (b"base64", coded), (b"", metadata))
    return [b"\0".join((serial, *form)) for form in forms]


def _chain(data: bytes) -> None:
    """Split the content of several NV indices. No byte is lost, and no part is empty."""
    contents = data.split(b"\xff\xff")
    pieces = split_chain(contents)
    assert b"".join(pieces) == b"".join(contents)
    assert all(pieces)


def _instance_data(**known: Any) -> list[bytes]:  # noqa: ANN401 - what cloud-init knows
    return [json.dumps(known).encode()]


_DEVICE = "2885032e-61a8-4786-bd26-7b2e2e6ba1ea"
_RESOURCE = (
    b"/subscriptions/8d10da13-8125-4ba9-a717-bf7490507b3d/resourceGroups/fleet"
    b"/providers/Microsoft.Compute/virtualMachines/md-0"
)
_INTERFACE = b'{"ipv4": {"ipAddress": [{"privateIpAddress": "10.1.0.4"}]}, "ipv6": {}}'

_EC2 = (
    *(b"AQAEAKvtVnQ=", b"eu-central-1b", b"i-0abcdef1234567890"),
    *(b"ip-1.example", b"10.0.1.23"),
)
_GCE = (b"project-1", b"projects/1/zones/europe-west3-a", b"md-0", b"10.1.0.4")

PROVIDERS = (
    Target(
        name="provider-aws",
        run=_from_service(lambda: Aws(""), {TOKEN_TTL.lower(): "30"}),
        seeds=lambda: [b"\0".join(_EC2)],
        errors=PROVIDER_ERRORS,
    ),
    Target(
        name="provider-azure",
        run=_from_service(lambda: Azure(""), {}),
        seeds=lambda: [_RESOURCE + b"\0md-0\0" + _INTERFACE],
        errors=PROVIDER_ERRORS,
    ),
    Target(
        name="provider-gce",
        run=_from_service(lambda: Gce(""), {"metadata-flavor": "Google"}),
        seeds=lambda: [b"\0".join(_GCE)],
        errors=PROVIDER_ERRORS,
    ),
    Target(
        name="provider-openstack",
        run=_from_service(lambda: OpenStack(""), {}),
        seeds=lambda: _instance_data(uuid=_DEVICE, hostname="md-0.novalocal"),
        errors=PROVIDER_ERRORS,
        form=Form.JSON,
    ),
    Target(
        name="provider-equinix",
        run=_from_file(lambda path: Equinix("", path=path)),
        seeds=lambda: _instance_data(v1={"instance_id": _DEVICE, "local_hostname": "MD-0"}),
        errors=PROVIDER_ERRORS,
        form=Form.JSON,
    ),
    Target(
        name="provider-metal3",
        run=_from_file(lambda path: Metal3("", path=path)),
        seeds=lambda: _instance_data(ds={"meta_data": {"providerid": "metal3/node-1/md-0"}}),
        errors=PROVIDER_ERRORS,
        form=Form.JSON,
    ),
    Target(
        name="provider-file",
        run=_from_file(lambda path: File(str(path))),
        seeds=lambda: [b"providerID: a://1\nnodeName: md-0\naddresses: [10.0.0.1, md-0.example]\n"],
        errors=(ProviderAnswerInvalid, ConfigurationInvalid),
        form=Form.YAML,
    ),
    Target(
        name="provider-vsphere",
        run=_vsphere,
        seeds=_virtual_machines,
        errors=PROVIDER_ERRORS,
        form=Form.LINES,
    ),
)

TARGETS = (
    Target(
        name="exec-info",
        run=_exec_info,
        seeds=_exec_infos,
        errors=(ExecInfoInvalid, ConfigurationInvalid),
        form=Form.JSON,
    ),
    Target(
        name="credential",
        run=_credential,
        seeds=_credentials,
        errors=(StateCorrupted,),
        form=Form.LINES,
    ),
    Target(
        name="credential-intact",
        run=_credential_intact,
        seeds=_contents,
        errors=(StateCorrupted,),
        form=Form.LINES,
    ),
    Target(name="launcher", run=_launched, seeds=_contents, form=Form.LINES),
    Target(name="state", run=_state, seeds=_states, form=Form.JSON),
    Target(
        name="bootstrap",
        run=_bootstrap,
        seeds=kubeconfigs,
        errors=(BootstrapCredentialUnusable,),
        form=Form.YAML,
    ),
    Target(
        name="by-hand",
        run=_by_hand,
        seeds=_kubelet_kubeconfigs,
        errors=(KubeconfigUnusable, ExecInfoInvalid, ConfigurationInvalid),
        form=Form.YAML,
    ),
    Target(
        name="csr-answer",
        run=_csr,
        seeds=lambda: [json.dumps(CSR).encode()],
        errors=(ApiResponseMalformed,),
        form=Form.JSON,
    ),
    Target(name="tpm-certificates", run=_chain, seeds=leaves),
    *PROVIDERS,
)
