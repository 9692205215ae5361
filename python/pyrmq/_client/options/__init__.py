"""Options of producers and consumers, and the constructors that have them."""
