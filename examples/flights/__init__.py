"""The demo: a year of flights through a broker that is killed on the way, into Spark."""
