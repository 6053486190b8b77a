"""The node packages: their files, and their life in clean Debian systems under a real systemd.

`make test-packages` builds the packages and runs these tests.
"""
