"""What is promised about speed and size, measured."""
