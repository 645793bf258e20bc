"""The OpenAPI document of the served models, and the page that shows the document."""
