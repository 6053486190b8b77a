"""What survives a call: the state directory and the files in it."""
