#!/bin/sh
# Before a removal, but not before an upgrade: the argument is "remove" for dpkg and 0 for rpm.
set -e
case $1 in
  remove | 0) ;;
  *) exit 0 ;;
esac
name=kubelet-authenticator-tpm
timers="$name-renew.timer $name-serving.timer"
if [ -d /run/systemd/system ]; then
  systemctl disable --quiet --now $timers
elif command -v systemctl >/dev/null; then
  # In an image build no systemd runs that could stop them.
  systemctl disable --quiet $timers
fi
find /usr/lib/kubelet-authenticator-tpm -name __pycache__ -prune -exec rm -rf {} +
if grep -qs kubelet-authenticator-tpm /etc/kubernetes/kubelet.conf; then
  echo "node-attestation-authenticator: /etc/kubernetes/kubelet.conf runs the removed program;" \
    "the kubelet of this node needs another credential" >&2
fi
