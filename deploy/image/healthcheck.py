#!/usr/bin/env python3
"""Ends with status 0 if the server in this container is ready, else with status 1."""

import sys
import urllib.error
import urllib.request

try:
    urllib.request.urlopen("http://127.0.0.1:8501/readyz", timeout=4).close()
except (OSError, urllib.error.URLError) as error:
    sys.exit(f"http://127.0.0.1:8501/readyz: {error}")
