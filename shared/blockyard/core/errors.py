"""The error tree: every failure a caller can meet, with its fields and its remedy.

A class states one failure. Its fields say what failed (never secrets, token ids or payload), its ``remedy`` says what
to do next. ``code`` is stable: it is the last part of the problem type in REST and the code of an error frame.
Foreign errors (NATS, Redis, S3, NIXL, operating system) are translated where they enter, in the adapter.
Threading: values only.
"""

from typing import ClassVar


class BlockyardError(Exception):
    """Root of all errors that Blockyard raises on purpose."""

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Blockyard failed"
    remedy: ClassVar[str] = "Look at the log of the service for the first error."

    def __init__(self, detail: str = "", **fields: str | int | float) -> None:
        """Keep ``detail`` (one sentence) and ``fields`` (facts for machines)."""
        self.detail = detail
        self.fields = dict(fields)
        super().__init__(detail)

    def __str__(self) -> str:
        """Sentence for people: what, which, and what to do."""
        return " ".join(part for part in (self.finding, self.remedy) if part)

    @property
    def finding(self) -> str:
        """What and which, without what to do: a reason within another error, which has a remedy of its own."""
        facts = ", ".join(f"{name}={value}" for name, value in self.fields.items())
        return " ".join(part for part in (self.detail or self.title, f"({facts})" if facts else "") if part)


# --- kernel -------------------------------------------------------------------------------------------------------
class KernelError(BlockyardError):
    """A call broke a rule of the block lifecycle; nothing was changed."""

    code = "kernel"
    title = "The block lifecycle refused the call"
    remedy = "This is a bug in the caller; nothing was changed."


class HandleConsumedError(KernelError):
    """A one-shot handle was used a second time."""

    code = "handle-consumed"
    title = "The handle was already used"


class BlockStateError(KernelError):
    """A row is not in the state that the transition needs."""

    code = "block-state"
    title = "A block is in another state"


class StaleGenerationError(KernelError):
    """The slot was granted to somebody else since the handle was made."""

    code = "stale-generation"
    title = "The slot has a newer generation"


class OutOfBlocksError(KernelError):
    """Fewer blocks are free or evictable than asked for; nothing was taken."""

    code = "out-of-blocks"
    title = "Not enough blocks"
    remedy = "Release pins, raise the tier's capacity, or ask for fewer blocks."


class BlockSizeMismatchError(KernelError):
    """Payload or token count differs from what one block holds."""

    code = "block-size-mismatch"
    title = "Wrong block size"
    remedy = "Use the block size of the model identity."


class BlocksInUseError(KernelError):
    """Every block must be unused for this, and some are in somebody's hands."""

    code = "blocks-in-use"
    title = "Blocks are in use"
    remedy = "Release every handle, then try again."


class IntegrityError(KernelError):
    """The block table contradicts itself; found by a check, never repaired silently."""

    code = "integrity"
    title = "The block table contradicts itself"
    remedy = "Restart the service: it rebuilds the table from the stored headers. Then report the named violation."


# --- requests -----------------------------------------------------------------------------------------------------
class RequestError(BlockyardError):
    """The caller sent something that cannot be accepted; the service goes on."""

    code = "bad-request"
    title = "The request cannot be accepted"
    remedy = "Correct the named field and send it again."


class MalformedFrameError(RequestError):
    """Bytes that are no message of this channel."""

    code = "malformed-frame"
    title = "Not a message of this channel"
    remedy = "Check that both sides run compatible versions of Blockyard."


class FrameTooLargeError(RequestError):
    """A frame is longer than the channel allows; refused before decoding."""

    code = "frame-too-large"
    title = "The frame is too large"
    remedy = "Send smaller batches."


class TooManyKeysError(RequestError):
    """More keys in one call than the limit."""

    code = "too-many-keys"
    title = "Too many keys in one call"
    remedy = "Split the call into batches within the limit."


class UnsupportedVersionError(RequestError):
    """The peer speaks a protocol version that this one does not."""

    code = "unsupported-version"
    title = "Unsupported protocol version"
    remedy = "Upgrade the older side."


class IdentityMismatchError(RequestError):
    """Model identity of engine and node, or of block and reader, differ."""

    code = "identity-mismatch"
    title = "The model identity differs"
    remedy = "Give the engine and the node the same model settings; the named field differs."


class LayoutMismatchError(RequestError):
    """Block bytes or strides do not fit the node's layout."""

    code = "layout-mismatch"
    title = "The block layout differs"
    remedy = "Set the named size to the value of the node, or start a node for this layout."


class UnsealedMemoryError(LayoutMismatchError):
    """Memory that is to be mapped may still shrink, which would kill the process that maps it."""

    code = "unsealed-memory"
    title = "The size of the shared memory is not sealed"
    remedy = "Share the memory as a memfd (MFD_ALLOW_SEALING) and add the seal F_SEAL_SHRINK before handing it over."


class BlockNotFoundError(RequestError):
    """No registered block of this tier has the key."""

    code = "block-not-found"
    title = "No such block in this tier"
    remedy = "Look the key up again; the block may have been evicted."


class RequestNotSeenError(RequestError):
    """No engine of this node reported a decision for this request, or it is forgotten by now."""

    code = "request-not-seen"
    title = "The request was not seen here"
    remedy = "Ask the node of the engine that served it, soon: a node remembers its latest requests since its start."


class UnknownSessionError(RequestError):
    """The engine session is not known in this life of the block-manager."""

    code = "unknown-session"
    title = "Unknown engine session"
    remedy = "Say hello again; the client does this by itself."


class EngineNameTakenError(RequestError):
    """An engine of this name is connected, from another start and a process that lives."""

    code = "engine-name-taken"
    title = "Another engine has this name"
    remedy = "End the process named here, or give each engine of the node a name of its own (vLLM: blockyard.name)."


class UnknownMappingError(RequestError):
    """A job names an engine mapping that is not, or no longer, mapped."""

    code = "unknown-mapping"
    title = "Unknown engine mapping"
    remedy = "Nothing to do: the engine is gone and its jobs are cancelled."


class UnsupportedOperationError(RequestError):
    """The operation has no meaning for this tier or executor."""

    code = "unsupported-operation"
    title = "Not possible here"
    remedy = "See the named field for what is supported."


class RevisionConflictError(RequestError):
    """A shared record was changed by somebody else since it was read; nothing was written."""

    code = "revision-conflict"
    title = "The record has changed"
    remedy = "Read it again and decide anew; the service does this by itself."


class FencedError(RequestError):
    """A newer life has taken over the role; the caller must stop."""

    code = "fenced"
    title = "A newer life has taken over"
    remedy = "Restart this process; it takes a higher epoch."


class AttachedElsewhereError(RequestError):
    """The worker serves another block-manager whose connection is open."""

    code = "attached-elsewhere"
    title = "The worker serves another block-manager"
    remedy = "Stop the other block-manager, or give this node a folder of its own."


class NotAttachedError(RequestError):
    """A command came over a connection that is not the attached one."""

    code = "not-attached"
    title = "Not attached"
    remedy = "Attach first; the block-manager does this by itself after a reconnect."


# --- environment --------------------------------------------------------------------------------------------------
class UnavailableError(BlockyardError):
    """Something needed is not there now; the answer is *unknown*, never *not found*."""

    code = "unavailable"
    title = "A dependency is not available"
    remedy = "The service retries by itself; check that the named server runs and is reachable."


class AccessDeniedError(UnavailableError):
    """The server answered, but refuses these credentials; what it holds stays unknown."""

    code = "access-denied"
    title = "Access denied"
    remedy = "Check the access key, the secret key and the policy of the named bucket or server."


class NotAskedError(UnavailableError):
    """The server did not answer lately, so it was not asked this time."""

    code = "not-asked"
    title = "Not asked"


class NotReadyError(UnavailableError):
    """The service is starting: its tables are not complete yet."""

    code = "not-ready"
    title = "Not ready yet"
    remedy = "Wait for /readyz; it names what is missing."


class LoadingOffError(UnavailableError):
    """An operator switched the loads of this node off."""

    code = "loading-off"
    title = "Loads are switched off"
    remedy = "Go on without; switch them on with `blockyard loads on` once that is wanted."


class JobWindowFullError(UnavailableError):
    """Too many transfer jobs of a worker are open; nothing was planned."""

    code = "job-window-full"
    title = "Too many open jobs"
    remedy = "Plan again when a job has settled."


class DeadlineExceededError(UnavailableError):
    """No answer within the time given."""

    code = "deadline-exceeded"
    title = "No answer in time"
    remedy = "Raise the timeout, or check the load of the named server."


class PeerClosedError(UnavailableError):
    """The other side closed the connection before it answered."""

    code = "peer-closed"
    title = "The connection ended"


class StorageError(BlockyardError):
    """A disk or object store failed."""

    code = "storage"
    title = "Storage failed"
    remedy = "Check the device or bucket named here; blocks that are not affected stay readable."


class NoSpaceError(StorageError):
    """The device or bucket is full."""

    code = "no-space"
    title = "No space left"
    remedy = "Free space where the named file lies, or lower g3.capacity; what is stored can still be read."


class CorruptBlockError(StorageError):
    """Stored bytes do not match their header."""

    code = "corrupt-block"
    title = "Stored bytes are damaged"
    remedy = "Nothing to do: the copy is condemned and counted, the block is a miss there."


class ForeignFileError(StorageError):
    """A file in our place is not ours, is of another format, or belongs to another node."""

    code = "foreign-file"
    title = "The file is not ours"
    remedy = "Point the folder setting elsewhere, or move the file away."


class ObjectNotFoundError(StorageError):
    """The object store answered that it has no such object."""

    code = "object-not-found"
    title = "No such object"
    remedy = "Nothing to do: the index entry is dropped, the block is a miss there."


class TransferError(StorageError):
    """A mover could not move bytes."""

    code = "transfer"
    title = "A transfer failed"


# --- start --------------------------------------------------------------------------------------------------------
class StartupError(BlockyardError):
    """The process cannot start; it exits with this message."""

    code = "startup"
    title = "Cannot start"
    remedy = "Remove the cause named here, then start again."


class ConfigurationError(StartupError):
    """A setting is unknown, missing or wrong."""

    code = "configuration"
    title = "Wrong configuration"
    remedy = "Correct the named setting."


class DiskFullError(StartupError):
    """A folder that a process cannot do without lies on a disk that has too little room."""

    code = "disk-full"
    title = "The disk is full"
    remedy = "Free space there, or give the setting named here a folder on a disk with more room."


class ServerStartError(StartupError):
    """A program that the command runs for the user did not start, or ended too early."""

    code = "server-start"
    title = "A server did not start"
    remedy = "Look at its log for the reason; --keep keeps that of a run on this machine."


class ProcessEndedError(BlockyardError):
    """A process of a run ended that nobody had stopped."""

    code = "process-ended"
    title = "A process ended by itself"
    remedy = "Look at its log for the reason; --keep keeps that of a run on this machine."


class AlreadyRunningError(StartupError):
    """Another process holds the lock of the state folder."""

    code = "already-running"
    title = "Already running"
    remedy = "Stop the process named here, or use another state folder."
