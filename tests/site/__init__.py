"""The documentation site in a real browser: `make test-site`."""
