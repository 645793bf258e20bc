"""The request log, whose files can serve as warm-up files, and the access log."""

from server.request_log.log import RequestLog as RequestLog
