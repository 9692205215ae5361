"""The options of a server: property files, keys without effect, changes while it runs."""
