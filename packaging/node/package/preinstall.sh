#!/bin/sh
# Removes the bytecode of the version that is replaced: Python would run it in place of the new modules.
set -e
if [ -d /usr/lib/kubelet-authenticator-tpm ]; then
  find /usr/lib/kubelet-authenticator-tpm -name __pycache__ -prune -exec rm -rf {} +
fi
