"""A request that is not served, in the words of vLLM."""

from __future__ import annotations


class RefusedError(Exception):
    """The request is not served. handled: it got as far as vLLM's own code, which then lets prefill's KV go."""

    def __init__(
        self, status: int, message: str, *, kind: str = "", param: str | None = None, handled: bool = True
    ) -> None:
        super().__init__(message)
        names = {400: "BadRequestError", 401: "Unauthorized", 404: "NotFoundError"}
        self.status, self.handled = status, handled
        kind = names.get(status, "InternalServerError")
        self.said = {"error": {"message": message, "type": kind, "param": param, "code": status}}
