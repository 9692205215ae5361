"""What streaming queries do, and how far behind they are."""
