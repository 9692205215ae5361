"""All Python tests; CONTRIBUTING.md explains the markers."""
