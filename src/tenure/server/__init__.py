"""The HTTP door: the API, the page, and the server that carries them."""
