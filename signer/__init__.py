"""The signer: verifies nodes of many workload clusters and issues their certificates."""
