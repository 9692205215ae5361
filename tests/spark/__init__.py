"""The Spark source: planning without Spark, then the real thing."""
