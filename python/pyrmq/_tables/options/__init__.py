"""Options of the formats: their names, their values, and what they mean together."""
