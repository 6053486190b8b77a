"""Node images: the tools that make and start them accept our files (`make test-node-images`).

A Debian system of its own has Ansible and cloud-init: neither belongs on a developer's machine.
"""
