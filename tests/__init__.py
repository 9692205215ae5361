"""All tests of Python; CONTRIBUTING.md says which ring is which."""
