"""The quick start, followed from the files of a release alone.

`make demo FROM=packages` prints each step. `make test-newcomer` requires that the last one shows a
Ready node. Only two things come from the checkout: the page, and what a user has before it, namely
control planes with Cluster API, and a machine with a TPM, a kubelet and kubeadm.
"""
