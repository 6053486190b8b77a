#!/bin/sh
# After a removal. dpkg's purge also removes the keys and certificates of the node; rpm has no such step.
set -e
case $1 in
  purge) rm -rf /var/lib/kubelet-authenticator ;;
  remove | 0)
    if [ -d /run/systemd/system ]; then
      systemctl daemon-reload
    fi
    ;;
esac
