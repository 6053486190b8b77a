#!/bin/sh
set -e
directory=/usr/lib/kubelet-authenticator-tpm
# Removes the bytecode of the version that is replaced: Python would run it in place of the new modules.
if [ -d $directory ]; then
  find $directory -name __pycache__ -prune -exec rm -rf {} +
fi
