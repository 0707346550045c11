"""Sources that pull from a broker: what arrives there is committed, then acknowledged."""
