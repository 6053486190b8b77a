"""This version beside the release before it: `make test-upgrade`."""
