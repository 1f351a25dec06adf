"""Words of the job channel: what a later version may add is refused or read as no success."""

import pytest

from blockyard.core.errors import MalformedFrameError
from blockyard.core.jobs import JobPhase, Refusal
from blockyard.core.vocabulary import ItemStatus, JobEnd
from blockyard.wire import worker_channel as channel
from blockyard.wire.codec import BoundedDecoder, encode

REPLIES: BoundedDecoder[channel.Reply] = BoundedDecoder(channel.Reply)


def test_a_status_that_is_not_known_is_no_success() -> None:
    result = channel.JobResult(epoch=1, seq=1, worker_epoch=1, end=JobEnd.DONE, status=bytes([0, 1, 200]))
    assert result.statuses() == [ItemStatus.OK, ItemStatus.CORRUPT, ItemStatus.UNKNOWN]


def test_reasons_and_phases_travel_as_words() -> None:
    refused = channel.Refused(reason=Refusal.NO_MAPPING)
    states = channel.JobStates(states=(channel.JobState(epoch=1, seq=2, state=JobPhase.UNSEEN),))
    assert [REPLIES.decode(encode(reply)) for reply in (refused, states)] == [refused, states]
    assert REPLIES.decode(encode({"type": "refused", "reason": "no_mapping"})) == refused


@pytest.mark.parametrize(
    "message",
    [
        {"type": "refused", "reason": "a later reason"},
        {"type": "job_states", "states": [{"epoch": 1, "seq": 2, "state": "a later phase"}]},
    ],
)
def test_a_word_that_is_not_known_is_malformed(message: dict[str, object]) -> None:
    with pytest.raises(MalformedFrameError):
        REPLIES.decode(encode(message))
