#!/bin/sh
set -e
directory=/usr/lib/kubelet-authenticator-tpm
# Removes the bytecode of the version that is replaced: Python would run it in place of the new modules.
if [ -d $directory ]; then
  find $directory -name __pycache__ -prune -exec rm -rf {} +
fi
# For postinstall.sh, to which dpkg passes the same after an upgrade and after an installation that follows a removal.
# The argument is "install" for dpkg and 1 for rpm, also after a removal.
case $1 in
  install | 1)
    mkdir -p $directory
    : >$directory/is-installed-now
    ;;
esac
