"""The node packages: in signed repositories, installed from there, upgraded and changed back."""
