"""What is checked, by number; see docs/protocol.md section 5."""
