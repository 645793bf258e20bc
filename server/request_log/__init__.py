"""Requests written down: records that are also warm-up requests."""

from server.request_log.log import RequestLog as RequestLog
