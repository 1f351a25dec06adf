"""Settings of a node: one typed tree of sections, the same for its three services.

Where the values come from is the business of ``settings_source``. Invariants: unknown keys are refused; secrets never
show in ``repr`` or dumps.
Threading: frozen values.
"""

from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from pydantic import (
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from blockyard.core.errors import ConfigurationError
from blockyard.core.offload_plan import WritePolicy
from blockyard.core.pack_plan import RECORD_HEADER_BYTES
from blockyard.runtime.node_folder import DEFAULT_FOLDER
from blockyard.runtime.setting_values import (
    Size,
    require_bucket,
    require_eviction_policy,
    require_folder,
    require_host,
    require_machine_name,
    require_nats_address,
    require_reachable_host,
    require_redis_address,
    require_web_address,
    require_word,
    shown_size,
)
from blockyard.tiers.g4_packs import MAX_PACK_BYTES, PACK_HEADER_BYTES
from blockyard.tiers.header import MOST_SLOTS

MAX_TARGET_BYTES: Final = MAX_PACK_BYTES - PACK_HEADER_BYTES
"""Most that the blocks of one object may take."""
_DEFAULT_BLOCK_BYTES: Final = 131_072
_SHORTEST_SECONDS: Final = 0.001
_LONGEST_SECONDS: Final = 3_600.0
_LARGEST_TIER: Final = 1 << 50


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class MoverChoice(StrEnum):
    """How bytes move between G2 and G3."""

    AUTO = "auto"
    """NIXL where it works here, else plain; a metric shows that it fell back, the log why."""
    NIXL = "nixl"
    PLAIN = "plain"


class NodeSection(_Section):
    """Who this node is and where its state lies."""

    name: str = "node"
    """Its instance in events, in its NATS record and in the API; may be the name of its machine, dots and all."""
    namespace: str = Field(default="default", pattern=r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$")
    """Part of the event subject and of the key of the NATS record; keeps clusters on one NATS apart."""
    folder: Path = DEFAULT_FOLDER
    """State folder of the node; local disk. Sockets, locks and epochs of all its processes lie below it."""
    block_bytes: Size = Field(default=ByteSize(_DEFAULT_BLOCK_BYTES), ge=4_096, le=MAX_TARGET_BYTES)
    """Payload bytes of one block; a multiple of 4096, at most 65528 KiB. Engines with another size are refused."""
    block_tokens: int = Field(default=512, ge=1, le=1 << 20)
    """Tokens of one block. Engines with another number are refused."""

    _machine = field_validator("name")(require_machine_name)
    _folder = field_validator("folder", mode="before")(require_folder)

    @field_validator("block_bytes")
    @classmethod
    def _page_multiple(cls, value: ByteSize) -> ByteSize:
        if value % 4_096:
            raise ValueError("must be a multiple of 4096 bytes")
        if value + RECORD_HEADER_BYTES > MAX_TARGET_BYTES:
            raise ValueError("must be at most 65528 KiB: a block is stored in one object")
        return value


class G2Section(_Section):
    """Host memory tier."""

    capacity: Size = Field(default=ByteSize(1 << 30), le=_LARGEST_TIER)
    """Payload bytes in host memory; as many whole blocks as fit, at least one."""
    eviction: str = Field(default="lru", pattern=r"^[a-z][a-z0-9_]{0,62}$")
    """Which blocks leave first when the tier is full: the name of a policy."""

    _policy = field_validator("eviction")(require_eviction_policy)


class G3Section(_Section):
    """Local disk tier."""

    enabled: bool = True
    """Whether the node has this tier."""
    capacity: Size = Field(default=ByteSize(8 << 30), le=_LARGEST_TIER)
    """Payload bytes on disk, preallocated at the first start; as many whole blocks as fit, at least one."""
    folder: Path | None = None
    """Folder of the slab files; default ``<node folder>/g3``."""
    eviction: str = Field(default="lru", pattern=r"^[a-z][a-z0-9_]{0,62}$")
    """Which blocks leave first when the tier is full: the name of a policy."""
    mover: MoverChoice = MoverChoice.AUTO
    """What moves bytes between G2 and the slab file."""
    commit_interval_ms: int = Field(default=10, ge=1, le=10_000)
    """Longest time that finished payloads wait for their sync."""
    commit_bytes: Size = Field(default=ByteSize(64 << 20), le=1 << 40)
    """So many payload bytes that wait start a sync at once."""
    write_policy: WritePolicy = WritePolicy.WRITE_THROUGH
    """When a block of G2 is written: as soon as it is there, or when it is among the next that G2 will give up."""
    bytes_per_day: Size = Field(default=ByteSize(0), le=_LARGEST_TIER)
    """Most that is written within any 24 hours, to spare the disk; 0: no limit. At least one block."""
    least_uses: int = Field(default=1, ge=1, le=32)
    """Recent uses that a block needs: the first counts 1, each further one doubles that, ten minutes take 1 off."""

    _folder = field_validator("folder", mode="before")(require_folder)
    _policy = field_validator("eviction")(require_eviction_policy)


class G4Section(_Section):
    """Shared object store tier."""

    enabled: bool = True
    """Whether the node has this tier. Without it no remote-tier is needed."""
    standalone: bool = False
    """The remote-tier serves no node: it keeps the shared index and refuses block-managers. Others ignore this."""
    endpoint_url: str = "http://127.0.0.1:8333"
    """Address of the S3-compatible server: scheme, host and port."""
    region: str = Field(default="us-east-1", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """Region that requests are signed for."""
    bucket: str = "blockyard"
    """Bucket of the store; made where it is missing."""
    prefix: str = Field(default="kv", pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")
    """What all object keys begin with, without a slash at either end."""
    access_key: SecretStr = SecretStr("")
    """Account of the object store."""
    secret_key: SecretStr = SecretStr("")
    """Its secret."""
    target_bytes: Size = Field(default=ByteSize(4 << 20), ge=4_096)
    """Wanted size of the blocks in one object, at most 65532 KiB; one value per store, kept in its marker."""
    tail_idle_seconds: float = Field(default=2.0, ge=_SHORTEST_SECONDS, le=_LONGEST_SECONDS)
    """A partly filled pack is stored when its chain got no new block for this long."""
    request_timeout_seconds: float = Field(default=10.0, ge=_SHORTEST_SECONDS, le=_LONGEST_SECONDS)
    """Longest time for one request to the object store."""
    max_requests: int = Field(default=8, ge=1, le=256)
    """Requests with payload at a time, each way; also the packs that may be on their way to the store at once."""

    _web_address = field_validator("endpoint_url")(require_web_address)
    _bucket = field_validator("bucket")(require_bucket)

    @field_validator("access_key", "secret_key")
    @classmethod
    def _word(cls, value: SecretStr) -> SecretStr:
        require_word(value.get_secret_value())
        return value

    @field_validator("target_bytes")
    @classmethod
    def _one_upload(cls, value: ByteSize) -> ByteSize:
        if value > MAX_TARGET_BYTES:
            raise ValueError(f"must be at most {MAX_TARGET_BYTES} bytes: an object has at most 64 MiB, header included")
        return value


class NatsSection(_Section):
    """Event bus."""

    url: SecretStr = SecretStr("nats://127.0.0.1:4222")
    """Address, with user and password if the server wants them."""
    timeout_seconds: float = Field(default=2.0, ge=_SHORTEST_SECONDS, le=_LONGEST_SECONDS)
    """Longest time for one call, and for one attempt to connect."""
    lease_ttl_seconds: float = Field(default=10.0, ge=1, le=_LONGEST_SECONDS)
    """How long the record of a node lives after its last renewal."""
    lease_tick_seconds: float = Field(default=3.0, ge=_SHORTEST_SECONDS, le=_LONGEST_SECONDS)
    """How often the record is renewed; shorter than its life."""
    stream_max_bytes: Size = Field(default=ByteSize(256 << 20), ge=1 << 20, le=_LARGEST_TIER)
    """Size of the event stream; the oldest events go first."""

    @field_validator("url")
    @classmethod
    def _address(cls, value: SecretStr) -> SecretStr:
        require_nats_address(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Self:
        if self.lease_tick_seconds >= self.lease_ttl_seconds:
            raise ValueError("lease_tick_seconds must be shorter than lease_ttl_seconds")
        return self


class RedisSection(_Section):
    """Prefix index."""

    url: SecretStr = SecretStr("redis://127.0.0.1:6379/0")
    """Address and database, with user and password if the server wants them. One database holds one index."""
    timeout_seconds: float = Field(default=1.0, ge=_SHORTEST_SECONDS, le=_LONGEST_SECONDS)
    """Longest time for one call."""
    entry_ttl_seconds: int = Field(default=86_400, ge=60, le=366 * 86_400)
    """Entries that nobody asked for expire after this long."""

    @field_validator("url")
    @classmethod
    def _address(cls, value: SecretStr) -> SecretStr:
        require_redis_address(value.get_secret_value())
        return value


class HttpSection(_Section):
    """Where the services answer HTTP; port 0 lets the system choose (the choice is written to the state folder)."""

    host: str = "127.0.0.1"
    """Address to bind."""
    advertised_host: str = ""
    """Host under which others reach this node; empty: `http.host`, or the machine's name where that binds all."""
    block_manager_port: int = Field(default=0, ge=0, le=65_535)
    """Port of the block-manager."""
    offload_worker_port: int = Field(default=0, ge=0, le=65_535)
    """Port of the offload-worker."""
    remote_tier_port: int = Field(default=0, ge=0, le=65_535)
    """Port of the remote-tier."""

    _host = field_validator("host")(require_host)
    _reachable = field_validator("advertised_host")(require_reachable_host)


class JobSection(_Section):
    """Transfer jobs."""

    max_items: int = Field(default=64, ge=1, le=1_024)
    """Blocks in one job."""
    store_ttl_ms: int = Field(default=30_000, ge=1, le=3_600_000)
    """Time of a store from the moment it is planned; what has not begun by then is not done."""
    resend_ms: int = Field(default=200, ge=1, le=3_600_000)
    """How long the block-manager waits for an answer before it sends a message about a job again."""
    resend_limit: int = Field(default=3, ge=1, le=1_000)
    """So many repeats without an answer; then the job waits for one until its time is over."""
    queue_limit: int = Field(default=256, ge=1, le=65_536)
    """Open jobs per worker, and stores that wait for a place among them."""
    stuck_ms: int = Field(default=10_000, ge=500, le=3_600_000)
    """How long after its deadline the last step of a load may be open; then the offload-worker is killed."""


class LogSection(_Section):
    """Logging."""

    level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    """Least level that is written."""
    json_lines: bool = False
    """One JSON object per line instead of text for people."""


class TracingSection(_Section):
    """Traces, as OpenTelemetry spans."""

    endpoint_url: str = ""
    """Address of an OTLP/HTTP receiver: scheme, host and port. Empty: no spans are made."""
    sample_ratio: float = Field(default=0.01, ge=0, le=1)
    """Share of requests that are traced where the engine has not decided; its decision holds where it has."""
    timeout_seconds: float = Field(default=5.0, ge=_SHORTEST_SECONDS, le=_LONGEST_SECONDS)
    """Longest time for one delivery of spans; what cannot be delivered is dropped."""

    @field_validator("endpoint_url")
    @classmethod
    def _address(cls, value: str) -> str:
        return require_web_address(value) if value else value


class UnsafeSection(_Section):
    """Switches that break promises on purpose; for tests that prove the checks matter."""

    skip_verification: bool = False
    """Serve bytes without comparing checksums anywhere. Never set this outside a test."""


class NodeSettings(_Section):
    """All settings of a node."""

    node: NodeSection = NodeSection()
    g2: G2Section = G2Section()
    g3: G3Section = G3Section()
    g4: G4Section = G4Section()
    nats: NatsSection = NatsSection()
    redis: RedisSection = RedisSection()
    http: HttpSection = HttpSection()
    jobs: JobSection = JobSection()
    log: LogSection = LogSection()
    tracing: TracingSection = TracingSection()
    unsafe: UnsafeSection = UnsafeSection()

    @model_validator(mode="after")
    def _account_is_whole(self) -> Self:
        given = [bool(key.get_secret_value()) for key in (self.g4.access_key, self.g4.secret_key)]
        if given[0] is not given[1]:
            missing, present = ("g4.secret_key", "g4.access_key") if given[0] else ("g4.access_key", "g4.secret_key")
            raise ConfigurationError(f"missing: an account needs it beside {present}", key=missing)
        return self

    @model_validator(mode="after")
    def _budget_is_a_block(self) -> Self:
        if 0 < self.g3.bytes_per_day < self.node.block_bytes:
            least = shown_size(self.node.block_bytes)
            raise ConfigurationError(f"wrong value: must be 0 or at least one block ({least})", key="g3.bytes_per_day")
        return self

    @model_validator(mode="after")
    def _slots_can_be_named(self) -> Self:
        for name, section in (("g2", self.g2), ("g3", self.g3)):
            if section.capacity // self.node.block_bytes > MOST_SLOTS:
                limit = shown_size(MOST_SLOTS * self.node.block_bytes)
                raise ConfigurationError(
                    f"wrong value: must be at most {limit} with this size of a block", key=f"{name}.capacity"
                )
        return self
