#!/bin/sh
# Before a removal, but not before an upgrade: the argument is "remove" for dpkg and 0 for rpm.
set -e
case $1 in
  remove | 0) ;;
  *) exit 0 ;;
esac
name=kubelet-authenticator-tpm
if [ -z "${KUBELET_AUTHENTICATOR_REMOVE:-}" ] && grep -qs $name /etc/kubernetes/kubelet.conf; then
  echo "node-attestation-authenticator: /etc/kubernetes/kubelet.conf runs this program: run \"$name leave\" first." \
    "To remove it all the same, set the variable KUBELET_AUTHENTICATOR_REMOVE=1" >&2
  exit 1
fi
if [ -d /run/systemd/system ]; then
  systemctl stop $name-serving.timer
fi
