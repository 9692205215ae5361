"""This build compared with the figures of the release: `make figures`."""
