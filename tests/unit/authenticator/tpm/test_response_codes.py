"""Each response code that real TPMs return has its error, in each format of the code."""

import pytest

from authenticator import errors
from authenticator.tpm import response_codes
from common.errors import AttestationError

BUSY = (0x908, 0x909, 0x90A, 0x920, 0x922, 0x923)
FULL = (0x902, 0x903, 0x904, 0x905, 0x906)
RESOURCE_MANAGER = 0x0B0000
ESYS = 0x070000


@pytest.mark.parametrize("layer", [0, RESOURCE_MANAGER])
@pytest.mark.parametrize(
    ("codes", "leaf"),
    [
        (BUSY, errors.TpmBusy),
        (FULL, errors.TpmOutOfMemory),
        ((0x921,), errors.TpmLockedOut),
        ((0x100,), errors.TpmUnavailable),
        ((0x101,), errors.TpmInFailureMode),
        ((0x085, 0x185), errors.EndorsementHierarchyDisabled),
        ((0x0A2, 0x9A2, 0x98E), errors.EndorsementAuthorizationRequired),
        ((0x143, 0x2C4), errors.TpmFailed),
    ],
)
def test_response_code_has_its_error(
    layer: int, codes: tuple[int, ...], leaf: type[AttestationError]
) -> None:
    for code in codes:
        error = response_codes.error_for_code(layer | code, "TPM2_Quote")
        assert type(error) is leaf
        assert error.detail == f"TPM2_Quote returned {layer | code:#x}"
        assert error.message
        assert "\n" not in error.message


def test_password_that_was_never_configured_is_not_in_a_file() -> None:
    configured, missing = (
        response_codes.error_for_code(0x9A2, "TPM2_CreatePrimary", has_password=has_password)
        for has_password in (True, False)
    )
    assert "is not that of endorsementPasswordFile" in configured.message
    assert "TPM2_Clear removes the password" in configured.message
    assert "set endorsementPasswordFile to a file that holds it" in missing.message


def test_broken_connection_is_not_a_response_of_the_tpm() -> None:
    assert type(response_codes.error_for_code(0xA000A, "TPM2_Quote")) is errors.TpmUnavailable


def test_error_of_the_libraries_is_not_a_response_of_the_tpm() -> None:
    assert type(response_codes.error_for_code(ESYS | 0x922, "TPM2_Quote")) is errors.TpmFailed


@pytest.mark.parametrize("code", BUSY)
def test_busy_tpm_is_retried(code: int) -> None:
    assert response_codes.is_retryable(code)
    assert response_codes.is_retryable(RESOURCE_MANAGER | code)


@pytest.mark.parametrize("code", [*FULL, 0x921, 0x101, 0, ESYS | 0x922])
def test_other_errors_are_not_retried(code: int) -> None:
    assert not response_codes.is_retryable(code)


@pytest.mark.parametrize("code", [0x2C4, 0x2CA, 0x2E6, 0x2C1, RESOURCE_MANAGER | 0x2D2])
def test_refused_parameter_may_mean_an_unsupported_template(code: int) -> None:
    assert response_codes.is_unsupported(code)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(0x9A2, id="a session's authorization"),
        pytest.param(0x184, id="a handle's value"),
        pytest.param(0x2DF, id="a parameter's integrity"),
        pytest.param(0x902, id="no memory"),
        pytest.param(ESYS | 0x2C4, id="another layer"),
    ],
)
def test_temporary_error_never_means_an_unsupported_template(code: int) -> None:
    assert not response_codes.is_unsupported(code)


@pytest.mark.parametrize(
    ("code", "blames"),
    [
        pytest.param(0x2DF, True, id="a parameter's integrity"),
        pytest.param(RESOURCE_MANAGER | 0x2DF, True, id="passed on"),
        pytest.param(0x99F, False, id="a session's"),
        pytest.param(0x19F, False, id="a handle's"),
        pytest.param(0x149, False, id="a code of the other format"),
        pytest.param(ESYS | 0x2DF, False, id="another layer"),
        pytest.param(0, False, id="success"),
    ],
)
def test_only_codes_of_a_parameter_mean_a_refused_parameter(code: int, *, blames: bool) -> None:
    assert response_codes.is_parameter_error(code) is blames


def test_code_of_another_layer_has_no_base_code() -> None:
    assert response_codes.base_code(ESYS | response_codes.RC_FAILURE) == 0
    assert (
        response_codes.base_code(RESOURCE_MANAGER | response_codes.RC_FAILURE)
        == response_codes.RC_FAILURE
    )
