"""Who things belong to: coordinates, short keys, and what a bare name means."""
