#!/bin/sh
set -e
directory=/usr/lib/kubelet-authenticator-tpm
# Removes the bytecode of the version that is replaced: Python would run it in place of the new modules. Only the files:
# a program that runs may write into the directories, so that their removal fails.
if [ -d $directory ]; then
  find $directory -name '*.pyc' -delete
fi
