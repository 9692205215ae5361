"""Options of the formats: their names, values, and combinations."""
