"""The quick start, followed from the published files of a release alone.

`make test-newcomer` and `make demo FROM=packages` print each step. Only two things come from the
checkout: the page, and what a user has before it, namely control planes with Cluster API, and a
machine with a TPM, a kubelet and kubeadm.
"""
