"""A client of an S3 server out of the standard library: the peer of the object store adapter.

One connection, one request at a time, payload unsigned as the adapter sends it, nothing but put and get of whole
objects. Threading: blocking calls, one thread.
"""

import datetime
import hashlib
import hmac
import http.client
from typing import Final, Self
from urllib.parse import urlsplit

from bench.errors import WrongBytesError

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_PAYLOAD: Final = "UNSIGNED-PAYLOAD"
_SIGNED: Final = "host;x-amz-content-sha256;x-amz-date"


class PlainS3:
    """Use as a context manager."""

    def __init__(self, url: str, region: str, access_key: str, secret_key: str) -> None:
        """Nothing is sent before the first call."""
        self._host = urlsplit(url).netloc
        self._region = region
        self._access_key = access_key
        self._secret_key = secret_key
        self._connection = http.client.HTTPConnection(self._host, timeout=10)

    def put(self, path: str, body: bytes) -> None:
        """Store an object under ``/bucket/key``."""
        self._request("PUT", path, body)

    def get(self, path: str) -> bytes:
        """The whole object."""
        return self._request("GET", path, None)

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the connection."""
        self._connection.close()

    def _request(self, method: str, path: str, body: bytes | None) -> bytes:
        self._connection.request(method, path, body, self._signed_headers(method, path))
        response = self._connection.getresponse()
        data = response.read()
        if response.status != http.HTTPStatus.OK:
            raise WrongBytesError(f"{method} was answered with {response.status}")
        return data

    def _signed_headers(self, method: str, path: str) -> dict[str, str]:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": self._host, "x-amz-content-sha256": _PAYLOAD, "x-amz-date": now}
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        request = f"{method}\n{path}\n\n{lines}\n{_SIGNED}\n{_PAYLOAD}"
        scope = f"{now[:8]}/{self._region}/s3/aws4_request"
        text = f"{_ALGORITHM}\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        key = f"AWS4{self._secret_key}".encode()
        for part in (*scope.split("/"), text):
            key = hmac.digest(key, part.encode(), "sha256")
        headers["authorization"] = (
            f"{_ALGORITHM} Credential={self._access_key}/{scope}, SignedHeaders={_SIGNED}, Signature={key.hex()}"
        )
        return headers
