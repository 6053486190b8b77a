#!/usr/bin/env bash
# Builds a relocatable CPython from the source packages of Debian, with the libraries that it needs.
#
# Usage: build-python.sh DIRECTORY
#
# Runs in the Debian system of the oldest glibc that the result shall run with. apt must know the source packages of the
# release that `versions` is of. DIRECTORY becomes the CPython, with bin/python3 and lib/python3.13; it has the same
# bytes in each run. OpenSSL, zlib and libffi are linked into its modules, so it needs only glibc of the system.
set -euo pipefail
umask 022

directory=${1:?usage: build-python.sh DIRECTORY}
# Debian 13 gets security updates for both. Its newest versions: apt-cache showsrc python3.13 openssl
versions=(python3.13=3.13.5-2+deb13u5 openssl=3.5.7-1~deb13u2)

# The paths of the build are in its results.
work=/srv/build-python
rm -rf "$work" "${directory:?}"
mkdir -p "$work"
cd "$work"
for version in "${versions[@]}"; do
  if ! apt-get --quiet --quiet --only-source source "$version" >apt.log 2>&1; then
    echo "build-python.sh: cannot get the source package $version; write the version that Debian has now into $0:" >&2
    tail --lines=3 apt.log >&2
    exit 1
  fi
done
SOURCE_DATE_EPOCH=$(dpkg-parsechangelog --file python3.13-*/debian/changelog --show-field Timestamp)
export SOURCE_DATE_EPOCH
jobs=$(nproc)

echo "bundled: OpenSSL (about 5 minutes on two cores)"
(
  cd openssl-*/
  # The program speaks TLS to API servers, with certificates of RSA and elliptic curves. The directory for configuration
  # and certificates is one that no package has.
  ./config no-shared no-module no-dso no-tests no-apps no-docs no-legacy no-engine no-comp no-cmp no-cms no-ts no-srp \
    no-aria no-bf no-camellia no-cast no-idea no-md4 no-mdc2 no-rc2 no-rc4 no-rmd160 no-seed no-sm2 no-sm3 no-sm4 \
    no-whirlpool \
    --prefix="$work/openssl" --libdir=lib --openssldir=/usr/lib/kubelet-authenticator-tpm/openssl
  make -j"$jobs" build_libs
  make install_dev
) >openssl.log 2>&1

echo "bundled: CPython (about 4 minutes on two cores)"
(
  cd python3.13-*/
  # The linker takes libz.a because the directory has no shared library. ctypes needs libffi.
  mkdir "$work/static"
  cp "$(gcc -print-file-name=libz.a)" "$work/static"
  cp "$(gcc -print-file-name=libffi_pic.a)" "$work/static/libffi.a"
  # Modules that need other libraries are not built: the program for nodes imports none of them.
  ./configure --prefix="$directory" --without-ensurepip --disable-test-modules --with-openssl="$work/openssl" \
    LIBFFI_CFLAGS=" " LIBFFI_LIBS="$work/static/libffi.a" \
    CFLAGS="-O2 -g0 -ffile-prefix-map=$work=." LDFLAGS="-L$work/static -Wl,-z,relro,-z,now,-s,--build-id=none"
  make -j"$jobs"
  make install
) >python.log 2>&1

library=$(echo "$directory"/lib/python3.*)
cp openssl-*/LICENSE.txt "$library/LICENSE-openssl.txt"
cp /usr/share/doc/zlib1g-dev/copyright "$library/LICENSE-zlib.txt"
cp /usr/share/doc/libffi-dev/copyright "$library/LICENSE-libffi.txt"
printf '%s\n' "${versions[@]}" >"$library/SOURCES"
