"""The shipped trace slice is what its description says."""

from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS, load_trace


def test_the_slice_has_the_described_shape() -> None:
    trace = load_trace()
    assert len(trace) == 1_000
    assert all(1 <= len(request.blocks) <= 24 for request in trace)
    arrivals = [request.arrival_seconds for request in trace]
    assert arrivals[0] == 0.0
    assert arrivals == sorted(arrivals)


def test_a_block_id_has_one_parent() -> None:
    """An id names the block and its whole prefix, so equal ids are the same KV."""
    parents: dict[int, int] = {}
    for request in load_trace():
        for parent, block in zip((-1, *request.blocks), request.blocks, strict=False):
            assert parents.setdefault(block, parent) == parent


def test_tokens_of_two_blocks_never_meet() -> None:
    request = max(load_trace(), key=lambda item: len(item.blocks))
    tokens = request.tokens()
    assert tokens.size == len(request.blocks) * TRACE_BLOCK_TOKENS
    assert len(set(tokens.tolist())) == tokens.size
