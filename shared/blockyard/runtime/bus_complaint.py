"""What to tell people where NATS cannot be used: the setting to look at, and why; never user or password.

Threading: pure functions.
"""

from urllib.parse import urlsplit

from blockyard.runtime.bus_values import server_of


def bus_complaint(error: Exception, url: str) -> str:
    """Why a connection to ``url`` failed, in one sentence that is the same for the same reason."""
    server, text = server_of(url), str(error).removeprefix("nats: ").strip("'")
    if isinstance(error, TimeoutError):
        return f"nats.url: {server} does not answer in time (nats.timeout_seconds); check port and scheme"
    if isinstance(error, OSError):
        return f"nats.url: cannot connect to {server}: {error.strerror or text}"
    if "authorization" in text.lower() or "authentication" in text.lower():
        if urlsplit(url).username is None:
            return f"nats.url: {server} wants an account, and none is given: nats://user:password@host:port"
        return f"nats.url: {server} refuses this user or password"
    return f"nats.url: {server} cannot be used as NATS: {text or type(error).__name__}"
