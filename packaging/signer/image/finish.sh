#!/bin/sh
# Removes what the signer does not need from the root file system, compiles Python's modules, and makes all times equal.
#
# Usage: SOURCE_DATE_EPOCH=SECONDS finish.sh DIRECTORY
set -eu

root=${1:?usage: finish.sh DIRECTORY}
epoch=${SOURCE_DATE_EPOCH:-0}
modules=$(echo "$root"/usr/local/lib/python3.*/dist-packages)
standard=$(echo "$root"/usr/lib/python3.*)

# The program of the nodes, the commands of operators and the insecure signer are in the same wheel.
rm -rf "$modules/authenticator" "$modules/signer/operator_cli" "$modules/signer/insecure"
# Scripts of base-files need a shell.
find "$root/usr/bin" "$root/usr/sbin" "$root/usr/local/bin" ! -type d ! -name 'python3*' \
  ! -name node-attestation-signer -delete
rm -rf "$root/usr/share/man" "$root/usr/share/info" "$root/usr/share/lintian" "$root/usr/share/base-files" \
  "$root/usr/share/bug" "$root/usr/share/binfmts" "$root/etc/profile.d" "$root/etc/update-motd.d"
# The directory of a package may be a link to the one of another package.
find "$root/usr/share/doc" -type f ! -name copyright -delete
find "$root/usr/share/doc" -xtype l -delete
find "$root/usr/share" -depth -type d -empty -delete

# The file system is read-only at run time. Bytecode without times or paths of this build is the same in each build.
PYTHONHASHSEED=0 python3 -m compileall -q -f -j 1 --invalidation-mode unchecked-hash -s "$root" "$standard" "$modules"
find "$root" -newermt "@$epoch" -exec touch --no-dereference --date="@$epoch" {} +
