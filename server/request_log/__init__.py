"""The request log, whose files can be used as warm-up files of a model, and the access log."""

from server.request_log.log import RequestLog as RequestLog
