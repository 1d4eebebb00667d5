"""The connector against real Spark and a real broker."""
