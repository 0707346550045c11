"""Jobs that fire when they should, once, under an identity that lasts."""
