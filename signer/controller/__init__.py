"""Work queue, reconciliation, housekeeping, audit log and metrics."""
