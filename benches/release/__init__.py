"""This build beside the figures of the release: `make figures`."""
