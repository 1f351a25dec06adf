"""What to tell people about a server that does not do what is needed: the setting to look at first, and a remedy.

Every sentence begins with the keys of the settings that are most likely wrong, and never holds a secret: addresses are
shown without user and password, accounts not at all. The same failure is told in the same words, whatever numbers the
error carries, so that a change of words is news.
Threading: pure functions.
"""

from typing import Final
from urllib.parse import urlsplit

from blockyard.core.errors import (
    AccessDeniedError,
    BlockyardError,
    ConfigurationError,
    DeadlineExceededError,
    ForeignFileError,
    ObjectNotFoundError,
    UnavailableError,
)
from blockyard.runtime.bus_values import server_of
from blockyard.runtime.settings import G4Section, RedisSection
from blockyard.tiers.store_marker import marker_key

_UNKNOWN_ACCOUNT: Final = "InvalidAccessKeyId"
_WRONG_SECRET: Final = "SignatureDoesNotMatch"
_WRONG_NAME: Final = "InvalidBucketName"
_NO_PERMISSION: Final = "permission"


def store_complaint(error: BlockyardError, g4: G4Section) -> str:
    """What is wrong with the object store or with what the settings say of it."""
    match error:
        case AccessDeniedError():
            return _refused_account(str(error.fields.get("reason", "")), str(error.fields.get("action", "")), g4)
        case DeadlineExceededError():
            return f"g4.endpoint_url: {g4.endpoint_url} does not answer in time (g4.request_timeout_seconds); is it S3?"
        case UnavailableError() if error.fields.get("reason") == _WRONG_NAME:
            return f"g4.bucket: the object store takes no bucket called {g4.bucket}"
        case UnavailableError():
            return f"g4.endpoint_url: no object store at {g4.endpoint_url}: {error.detail}; check scheme, host and port"
        case ObjectNotFoundError():
            return f"g4.bucket, g4.prefix: {g4.bucket}/{g4.prefix} has vanished: bring it back, or start this anew"
        case ForeignFileError() if "found" in error.fields:
            return f"g4.bucket, g4.prefix: {error.finding}: bring the first one back, or start this anew"
        case ForeignFileError():
            place = f"{g4.bucket}/{marker_key(g4.prefix)}"
            return (
                f"g4.bucket, g4.prefix: {error.finding}: name others, or remove the object {place} if nobody needs it"
            )
        case ConfigurationError() if "key" in error.fields:
            return f"{error.fields['key']}: {error.detail}"
        case _:
            return str(error)


def index_complaint(error: UnavailableError, redis: RedisSection) -> str:
    """What is wrong with the server of the index or with what the settings say of it."""
    url = redis.url.get_secret_value()
    server = server_of(url)
    match error:
        case AccessDeniedError() if _NO_PERMISSION in error.detail:
            return f"redis.url: {server} does not let this user do what is needed: {error.detail}"
        case AccessDeniedError() if not urlsplit(url).password:
            return f"redis.url: {server} wants a password, and none is given: redis://user:password@host:port/0"
        case AccessDeniedError():
            return f"redis.url: {server} refuses this user or password"
        case DeadlineExceededError():
            return f"redis.url: {server} does not answer in time (redis.timeout_seconds); check port and scheme"
        case _:
            what = "host and port" if urlsplit(url).hostname else "the path"
            return f"redis.url: no index at {server}: {error.detail}; check {what}"


def settings_named(complaint: str) -> frozenset[str]:
    """Keys of settings at the beginning of a complaint."""
    head, colon, _ = complaint.partition(": ")
    return frozenset(head.split(", ")) if colon else frozenset()


def _refused_account(reason: str, action: str, g4: G4Section) -> str:
    if not g4.access_key.get_secret_value():
        return "g4.access_key, g4.secret_key: the object store wants an account, and none is given"
    if reason == _UNKNOWN_ACCOUNT:
        return "g4.access_key: the object store does not know this account"
    if reason == _WRONG_SECRET:
        return "g4.secret_key: the object store says that it does not belong to g4.access_key"
    what = f"may not {action}" if action else "is refused"
    why = f"the account {what} in bucket {g4.bucket} ({reason or 'denied'})"
    return f"g4.bucket, g4.access_key: {why}; correct the policy of the bucket, or name another account"
