#!/bin/sh
# After a removal. dpkg's purge also removes the keys and certificates of the node; rpm has no such step.
set -e
drop_in=/etc/systemd/system/kubelet.service.d/zz-20-kubelet-authenticator-tpm.conf
case $1 in
  purge) rm -rf /var/lib/kubelet-authenticator ;;
  remove | 0)
    # Bytecode. Nothing writes it any more, because the modules are gone.
    rm -rf /usr/lib/kubelet-authenticator-tpm
    # "leave" hides the drop-in of the package with it.
    if [ "$(readlink $drop_in)" = /dev/null ]; then
      rm $drop_in
    fi
    if [ -d /run/systemd/system ]; then
      systemctl daemon-reload
    fi
    ;;
esac
