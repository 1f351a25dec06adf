"""Which content keys the requests of the trace have, under the identity of the demo engines.

Threading: values only.
"""

from blockyard.cli.demo_plan import Requests
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS, load_trace
from blockyard.core.hashing import content_run
from blockyard.core.identity import SequenceScope
from blockyard.core.vocabulary import ContentKey, IdentityDigest


class TraceKeys:
    """Content keys by request."""

    def __init__(self, identity: IdentityDigest) -> None:
        """Keys under ``identity``, in the scope of the demo engines."""
        self._identity = identity
        self._trace = load_trace()

    def of(self, requests: Requests) -> set[ContentKey]:
        """Keys of all blocks of these requests."""
        keys: set[ContentKey] = set()
        for request in self._trace[requests.first : requests.first + requests.count]:
            run = content_run(self._identity, SequenceScope(), request.tokens(), TRACE_BLOCK_TOKENS)
            keys.update(run.keys())
        return keys
