"""The node's program: it gets a kubelet its client certificate, with the TPM as the proof."""
