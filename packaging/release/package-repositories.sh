#!/usr/bin/env bash
# Adds the packages of a release to signed repositories for apt and dnf.
#
# Usage: package-repositories.sh PACKAGES DIRECTORY KEY
#
# PACKAGES has the debs and rpms of one release. DIRECTORY is what a web server serves; the packages of earlier releases
# stay in it. KEY names a secret key of gpg, which GNUPGHOME has. Needs apt-ftparchive, createrepo_c, gpg and rpmsign.
set -euo pipefail
shopt -s failglob
umask 022

usage="usage: package-repositories.sh PACKAGES DIRECTORY KEY"
packages=$(realpath "${1:?$usage}")
directory=${2:?$usage}
key=${3:?$usage}
name=node-attestation-authenticator

mkdir -p "$directory"
cd "$directory"
gpg --batch --armor --export "$key" >node-attestation.asc
# A component and a repository of its own: otherwise an upgrade would change to the packages with a CPython, whose
# version is the newer one.
mkdir -p apt/pool/{main,bundled} rpm/{main,bundled}
for package in "$packages/$name"*; do
  component=main
  [[ $package != *+bundled* ]] || component=bundled
  case $package in
    *.deb) cp "$package" apt/pool/$component ;;
    *.rpm)
      cp "$package" rpm/$component
      rpmsign --define "__gpg $(command -v gpg)" --addsign --key-id "$key" "rpm/$component/${package##*/}" >/dev/null
      ;;
  esac
done

(
  cd apt
  for component in main bundled; do
    for architecture in amd64 arm64; do
      index=dists/stable/$component/binary-$architecture
      mkdir -p "$index"
      apt-ftparchive --arch $architecture packages pool/$component >"$index/Packages"
      gzip --keep --force --no-name "$index/Packages"
    done
  done
  cd dists/stable
  rm -f InRelease
  release=$(apt-ftparchive -o APT::FTPArchive::Release::Origin=node-attestation \
    -o APT::FTPArchive::Release::Suite=stable -o APT::FTPArchive::Release::Architectures="amd64 arm64" \
    -o APT::FTPArchive::Release::Components="main bundled" release .)
  gpg --batch --local-user "$key" --clearsign --output InRelease <<<"$release"
)
for component in main bundled; do
  createrepo_c --quiet "rpm/$component"
  gpg --batch --yes --local-user "$key" --armor --detach-sign "rpm/$component/repodata/repomd.xml"
done
