"""What the arena asserts explains itself as what a test asserts does."""

import pytest

pytest.register_assert_rewrite("tests.attacks.arena")
