"""The provider `vsphere`: DMI as in sysfs, and tools that answer like those of VMware."""

import base64
import gzip
import os
from pathlib import Path

import pytest

from authenticator.errors import ProviderAnswerInvalid, ProviderUnavailable
from authenticator.model import Deadline
from authenticator.providers import vsphere
from authenticator.providers.provider import Identity
from authenticator.providers.vsphere import DMI, METADATA_LIMIT, TOOLS, VSphere

SERIAL = "VMware-42 03 94 2f ce 98 3f 27-45 5c 46 3d 34 b8 af 41\n"
PROVIDER_ID = "vsphere://4203942f-ce98-3f27-455c-463d34b8af41"
METADATA = b'\ninstance-id: "Fleet-MD-0"\nlocal-hostname: "Fleet-MD-0"\nnetwork:\n  version: 2\n'
TOOL = """\
#!/bin/sh
case "$*" in
{cases}
esac
echo 'No value found' >&2
exit 1
"""


def machine(directory: Path, serial: str = SERIAL) -> Path:
    (directory / "product_serial").write_text(serial)
    return directory


def tool(directory: Path, metadata: bytes, encoding: str, *, name: str = "vmware-rpctool") -> Path:
    """Write a tool that returns `guestinfo.metadata`."""
    prefix = "--cmd " if name == "vmtoolsd" else ""
    values = {"guestinfo.metadata": metadata.decode(), "guestinfo.metadata.encoding": encoding}
    cases = "\n".join(
        f"'{prefix}info-get {key}') cat <<'EOF'\n{value}\nEOF\nexit 0;;"
        for key, value in values.items()
        if value
    )
    return executable(directory / name, TOOL.format(cases=cases))


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def name(tools: Path, directory: Path, deadline: Deadline) -> str | None:
    """Return the node name that one installed tool yields."""
    missing = directory / "missing"
    result = VSphere("", dmi=machine(directory), tools=(missing, tools)).identity(deadline)
    assert result.provider_id == PROVIDER_ID
    return result.node_name


def test_paths_of_tools_are_those_of_the_distributions() -> None:
    """The programs at these paths run as root."""
    assert Path("/sys/class/dmi/id") == DMI
    assert (
        Path("/usr/bin/vmware-rpctool"),
        Path("/usr/share/oem/bin/vmware-rpctool"),
        Path("/usr/bin/vmtoolsd"),
        Path("/usr/share/oem/bin/vmtoolsd"),
    ) == TOOLS


def test_serial_number_is_the_bios_uuid_as_vcenter_writes_it(
    tmp_path: Path, deadline: Deadline
) -> None:
    result = VSphere("", dmi=machine(tmp_path), tools=()).identity(deadline)
    assert result == Identity(provider_id=PROVIDER_ID, node_name=None)


def test_serial_number_in_capitals_is_the_same_uuid(tmp_path: Path, deadline: Deadline) -> None:
    serial = "VMware-" + SERIAL.removeprefix("VMware-").upper()
    result = VSphere("", dmi=machine(tmp_path, serial), tools=()).identity(deadline)
    assert result.provider_id == PROVIDER_ID


def test_tool_gets_no_environment(
    tmp_path: Path, deadline: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAME_OF_ANOTHER", "local-hostname: another")
    program = executable(tmp_path / "tool", '#!/bin/sh\necho "$NAME_OF_ANOTHER"\n')
    assert name(program, tmp_path, deadline) is None


def test_output_of_a_failed_tool_is_ignored(tmp_path: Path, deadline: Deadline) -> None:
    program = executable(tmp_path / "tool", "#!/bin/sh\necho 'local-hostname: x'\nexit 1\n")
    assert name(program, tmp_path, deadline) is None


def test_swapped_product_uuid_is_not_used(tmp_path: Path, deadline: Deadline) -> None:
    """Virtual hardware 13 and newer swap the bytes of the first fields of the UUID."""
    (tmp_path / "product_uuid").write_text("2f940342-98ce-273f-455c-463d34b8af41\n")
    result = VSphere("", dmi=machine(tmp_path), tools=()).identity(deadline)
    assert result.provider_id == PROVIDER_ID


@pytest.mark.parametrize(
    "serial",
    [
        "",
        "None\n",
        "J1234XYZ\n",
        SERIAL.replace("VMware-", ""),
        SERIAL.replace(" 41", ""),
        SERIAL.replace("42", "zz"),
        SERIAL.replace(" ", ""),
        "VMware-\N{LATIN SMALL LETTER E WITH ACUTE}",
    ],
)
def test_serial_number_of_another_machine_is_refused(
    tmp_path: Path, deadline: Deadline, serial: str
) -> None:
    with pytest.raises(ProviderAnswerInvalid, match="product_serial"):
        VSphere("", dmi=machine(tmp_path, serial), tools=()).identity(deadline)


def test_machine_without_dmi_is_unavailable(tmp_path: Path, deadline: Deadline) -> None:
    with pytest.raises(ProviderUnavailable, match="product_serial"):
        VSphere("", dmi=tmp_path, tools=()).identity(deadline)


@pytest.mark.parametrize(
    ("metadata", "encoding"),
    [
        (base64.b64encode(METADATA), "base64"),
        (base64.encodebytes(METADATA + b"# of several lines\n" * 9), "b64"),
        (base64.b64encode(gzip.compress(METADATA)), "gzip+base64"),
        (base64.b64encode(gzip.compress(METADATA)), "gz+b64"),
        (METADATA, ""),
    ],
)
def test_name_is_read_in_every_encoding(
    tmp_path: Path, deadline: Deadline, metadata: bytes, encoding: str
) -> None:
    assert name(tool(tmp_path, metadata, encoding), tmp_path, deadline) == "fleet-md-0"


def test_vmtoolsd_gets_its_own_arguments(tmp_path: Path, deadline: Deadline) -> None:
    program = tool(tmp_path, METADATA, "", name="vmtoolsd")
    assert name(program, tmp_path, deadline) == "fleet-md-0"


@pytest.mark.parametrize("metadata", [b"", b"---", b"instance-id: x", b"local-hostname: 7"])
def test_guestinfo_without_a_name_yields_no_name(
    tmp_path: Path, deadline: Deadline, metadata: bytes
) -> None:
    assert name(tool(tmp_path, metadata, ""), tmp_path, deadline) is None


@pytest.mark.parametrize(
    ("metadata", "encoding"),
    [
        (b"*&^", "base64"),
        (base64.b64encode(METADATA), "gzip+base64"),
        (base64.b64encode(gzip.compress(METADATA)[:-9]), "gzip+base64"),
        (base64.b64encode(gzip.compress(b" " * (METADATA_LIMIT + 1))), "gzip+base64"),
        (b"a: [", ""),
        (b"!!python/object/apply:os.system [id]", ""),
    ],
    ids=["no base64", "no gzip", "cut off", "inflates", "no YAML", "YAML that acts"],
)
def test_guestinfo_that_cannot_be_read_is_refused(
    tmp_path: Path, deadline: Deadline, metadata: bytes, encoding: str
) -> None:
    with pytest.raises(ProviderAnswerInvalid, match="guestinfo"):
        name(tool(tmp_path, metadata, encoding), tmp_path, deadline)


def test_tool_that_hangs_is_ended(
    tmp_path: Path, soon: Deadline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vsphere, "TOOL_SECONDS", 3600.0)  # only the deadline limits it
    os.mkfifo(tmp_path / "never")
    hanging = executable(tmp_path / "vmtoolsd", f"#!/bin/sh\nexec cat '{tmp_path}/never'\n")
    with pytest.raises(ProviderUnavailable, match="in time"):
        name(hanging, tmp_path, soon)


def test_tool_that_cannot_be_run_is_unavailable(tmp_path: Path, deadline: Deadline) -> None:
    broken = executable(tmp_path / "vmtoolsd", "")
    broken.chmod(0o644)
    with pytest.raises(ProviderUnavailable, match="vmtoolsd"):
        name(broken, tmp_path, deadline)
