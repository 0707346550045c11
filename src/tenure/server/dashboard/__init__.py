"""The page that people look at, rendered on the server."""
