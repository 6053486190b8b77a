"""The shipped units under a real systemd, on the Debian releases that we support.

Each machine is clean, has the installed program, and runs our own stand-in for the kubelet.
"""
