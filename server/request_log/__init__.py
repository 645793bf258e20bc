"""The request log: sampled requests in files that are also warm-up files, and the access log."""

from server.request_log.log import RequestLog as RequestLog
