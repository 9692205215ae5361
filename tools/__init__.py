"""The programs behind the make targets."""
