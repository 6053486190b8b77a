#!/bin/sh
# Extracts the Debian packages that the signer needs into a directory. It runs none of their scripts.
#
# Usage: extract-packages.sh DIRECTORY ARCHITECTURE
#
# apt-get verifies the packages with Debian's keys. Their control files stay in var/lib/dpkg/status.d, where scanners for
# vulnerabilities look for them, with the SHA-256 of the package as in Debian's index.
set -eu

root=${1:?usage: extract-packages.sh DIRECTORY ARCHITECTURE}
architecture=${2:?usage: extract-packages.sh DIRECTORY ARCHITECTURE}
python=$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')

# libgcc-s1 and libc6: of every program; gcc-14-base has the copyright of libgcc-s1. ca-certificates: for the APIs of
# platforms. The others: of Python's standard library, as far as the signer can use it.
packages="base-files ca-certificates netbase tzdata libc6 libgcc-s1 gcc-14-base libssl3t64 zlib1g libzstd1 libexpat1 libffi8 libbz2-1.0 liblzma5 libuuid1
  lib$python-minimal lib$python-stdlib $python-minimal"

downloads=$(mktemp -d)
# apt-get downloads as this user.
chown _apt "$downloads"
cd "$downloads"
# This machine may have another architecture, so apt-get reads the index of this one into a directory of its own.
lists=$(mktemp -d)
chmod 755 "$lists"
set -- -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o "Dir::State::Lists=$lists"
apt-get "$@" --quiet --quiet update
# shellcheck disable=SC2086 - a list of words
apt-get "$@" --quiet download $packages >/dev/null

mkdir -p "$root/var/lib/dpkg/status.d"
for package in *.deb; do
  name=$(dpkg-deb --field "$package" Package)
  dpkg-deb --extract "$package" "$root"
  { dpkg-deb --field "$package"; printf 'SHA256: %s\n' "$(sha256sum <"$package" | cut -d ' ' -f 1)"; } \
    >"$root/var/lib/dpkg/status.d/$name"
done
rm -rf "$downloads" "$lists"

# The script of ca-certificates would write them into one file. This machine's own file may have more authorities.
authorities=$root$(python3 -c 'import ssl; print(ssl.get_default_verify_paths().openssl_cafile)')
mkdir -p "${authorities%/*}"
cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$authorities"

ln -s "$python" "$root/usr/bin/python3"
# Modules for terminals and databases would need more libraries. Nothing here uses them.
for module in readline _curses _curses_panel _dbm _gdbm _sqlite3 _tkinter; do
  rm -f "$root/usr/lib/$python/lib-dynload/$module".*.so
done

printf '%s\n' 'root:x:0:0:root:/:/sbin/nologin' 'nonroot:x:65532:65532:nonroot:/:/sbin/nologin' >"$root/etc/passwd"
printf '%s\n' 'root:x:0:' 'nonroot:x:65532:' >"$root/etc/group"
