"""Requests and replies, and brokers' checks of a producer."""

from pyrmq._request_reply.broker_requests import RequestReply
from pyrmq._request_reply.mixin import RequestMixin
from pyrmq._request_reply.waiting import left_of, reply_address

__all__ = ["RequestMixin", "RequestReply", "left_of", "reply_address"]
