"""Make pytest explain failed assertions of the runner as it explains those of tests."""

import pytest

pytest.register_assert_rewrite("tests.attacks.runner")
