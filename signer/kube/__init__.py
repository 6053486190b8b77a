"""What talks to API servers: the management cluster's, and those of hostile workload clusters."""
