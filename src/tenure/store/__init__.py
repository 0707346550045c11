"""The only folder that opens a database."""
