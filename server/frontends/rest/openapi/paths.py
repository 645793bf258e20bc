"""The URL paths of the OpenAPI document and of the page that shows the document."""

PAGE = "/docs"
STATIC = "/docs/static"
DESCRIPTION = "/openapi.json"

PATHS = (PAGE, DESCRIPTION)
"""The OpenAPI application answers all paths that begin with one of these."""
OPEN_PATHS = (
    PAGE,
    *(
        f"{STATIC}/{name}"
        for name in ("favicon.png", "swagger-ui-bundle.js", "swagger-ui.css", "page.js")
    ),
)
"""The paths that reveal nothing about the models. They need no API key."""
