"""A TPM that cannot be opened: the error is one line with the next step."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from authenticator import errors
from authenticator.model import Deadline
from authenticator.tpm.open_tpm import open_tpm
from common.errors import AttestationError
from tests.fakes.clock import FakeClock
from tests.unit.authenticator.tpm.conftest import MovedTime


def fail_to_open(
    monkeypatch: pytest.MonkeyPatch, number: int, *, took: Callable[[], None] = lambda: None
) -> None:
    """Make every open of a file fail with this error, after some time."""

    def refuse(path: str, flags: int) -> int:
        del flags
        took()
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.parametrize(
    ("tcti", "leaf", "step"),
    [
        ("", errors.TpmConfigurationInvalid, "device:/dev/tpmrm0"),
        ("nonsense:x", errors.TpmConfigurationInvalid, "libtss2-tcti-nonsense"),
        ("device:/nonexistent/tpm", errors.TpmUnavailable, "firmware"),
        ("swtpm:path=/nonexistent/tpm", errors.TpmUnavailable, "/nonexistent/tpm"),
    ],
)
def test_missing_tpm_is_an_error_with_its_remedy(
    tcti: str, leaf: type[AttestationError], step: str
) -> None:
    with pytest.raises(leaf) as caught, open_tpm(tcti, deadline=Deadline(FakeClock(), 60.0)):
        pass
    assert step in caught.value.message
    assert "\n" not in caught.value.message


def test_missing_permission_is_an_error_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_open(monkeypatch, errno.EACCES)
    with (
        pytest.raises(errors.TpmPermissionDenied, match="run as root"),
        open_tpm("device:/nonexistent/tpm", deadline=Deadline(FakeClock(), 60.0)),
    ):
        pass


def test_device_in_use_is_an_error_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch, moved: MovedTime
) -> None:
    fail_to_open(monkeypatch, errno.EBUSY, took=lambda: moved.sleep(20))
    with (
        pytest.raises(errors.TpmBusy, match="/dev/tpmrm0"),
        open_tpm("device:/nonexistent/tpm", deadline=Deadline(FakeClock(), 60.0)),
    ):
        pass
    assert moved.now >= 60


def test_file_that_is_not_a_tpm_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    with (
        pytest.raises(errors.TpmUnavailable, match="is not a TPM"),
        open_tpm(f"device:{file}", deadline=Deadline(FakeClock(), 60.0)),
    ):
        pass


def test_password_longer_than_an_auth_value_is_an_error() -> None:
    with (
        pytest.raises(errors.TpmConfigurationInvalid, match="64 bytes"),
        open_tpm("nonsense:x", endorsement_auth=b"x" * 65, deadline=Deadline(FakeClock(), 60.0)),
    ):
        pass
