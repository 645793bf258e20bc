"""The URL paths of the console, and the media types of its files."""

INDEX = "/"
"""The page for browsers, and a JSON index for other clients."""
PREFIX = "/console/"
STATUS = "/console/status"
SIGNATURES = "/console/signatures"
STATIC = "/console/static/"

FILES = {
    "console.css": b"text/css",
    "console.js": b"text/javascript",
    "form.js": b"text/javascript",
    "picture.js": b"text/javascript",
    "rates.js": b"text/javascript",
    "render.js": b"text/javascript",
    "server.js": b"text/javascript",
    "tensors.js": b"text/javascript",
    "trial.js": b"text/javascript",
    "icon.svg": b"image/svg+xml",
}
"""The files below STATIC, with their media types."""
OPEN_PATHS = (INDEX, *(STATIC + name for name in FILES))
"""The paths that reveal nothing about the models. They need no API key."""
