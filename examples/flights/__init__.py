"""The demo: a year of flights into Spark, through a broker that is killed on the way."""
