"""Every bound in one place, each with its unit and its reason.

A name ends in its unit (``_SECONDS``, ``_BYTES``, ``_ROWS``) or in ``_MAX`` for counts.
Durations that the kernel's promises rest on keep their ratios whatever happens: tests
may divide all of them by one factor (`Durations`), never one of them alone.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

from tenure.errors import ConfigInvalid

KIB: Final = 1024
MIB: Final = 1024 * KIB
DAY_SECONDS: Final = 86_400.0

# --- Nodes: who is alive, and who may go on -----------------------------------------
# The order beat < reconcile < fence < dead is the promise: a node that cannot renew
# starts nothing more (25 s) long before others may take its work (40 s).
BEAT_SECONDS: Final = 5.0  # one small write per node; eight beats before silence kills
RECONCILE_AGE_SECONDS: Final = 10.0  # two beats: a claim whose answer is under way
FENCE_SECONDS: Final = 25.0  # five missed beats; leaves 15 s before DEAD_AFTER
HEARD_SECONDS: Final = 15.0  # three beats: what people are told; closes no node
DEAD_AFTER_SECONDS: Final = 40.0  # longer than a failover or a long garbage collection
STALL_GRACE_SECONDS: Final = 60.0  # past the deadline of a row whose loop is stalled
SHORT_DEADLINE_SECONDS: Final = 60.0  # kinds up to here are lost after deadline_at only
FILE_LOCK_CHECK_SECONDS: Final = 1.0  # a killed and restarted process goes on within it

# --- Schedules ------------------------------------------------------------------------
JOB_TIMEOUT_SECONDS: Final = (
    3_600.0  # longest attempt of a job unless it says otherwise
)
JOB_TIMEOUT_MAX_SECONDS: Final = 7 * DAY_SECONDS  # beyond it nobody waits for an end
JOB_ATTEMPTS: Final = 10  # of a submitted run; one of a window is tried once
JOB_ATTEMPTS_MAX: Final = 1_000
QUEUE_RUNS_MAX: Final = 1  # windows that wait behind an open run under `queue`
JOB_ARGS_BYTES: Final = (
    256 * KIB
)  # arguments of one run; what is larger is stored apart
JOB_LOG_BYTES: Final = 64 * KIB  # log lines kept of one attempt, the newest of them
JOB_LOG_LINE_BYTES: Final = 4 * KIB  # longer lines are cut
JOB_ERROR_BYTES: Final = 16 * KIB  # a traceback's last part
JOB_THREADS: Final = 32  # jobs that are not asynchronous, at once in one process
TICK_JOBS: Final = 500  # jobs that fire in one transaction
TICK_POLL_SECONDS: Final = 5.0  # a beat: what others made due, and who has gone
CATCH_UP_WINDOWS: Final = 100  # missed windows of one job that fire in one transaction
ENROL_RETRY_SECONDS: Final = 1.0  # after a catalogue that could not be read
SUBMIT_MANY_MAX: Final = 10_000  # runs of one `submit_many`
BACKFILL_WINDOWS_MAX: Final = 1_000  # windows of one backfill, worked out at once
RUN_DAYS: Final = 30  # a run that is over is kept so long,
RUNS_KEPT: Final = 100  # and of each job always so many
WINDOW_DAYS: Final = 400  # more than a year: what fired is known when it is asked
REMINDER_PAGE_ROWS: Final = 500  # of a source, looked at in one transaction
PREVIEW_INSTANTS_MAX: Final = 1_000  # of one preview

# --- Worker: what runs at once --------------------------------------------------------
POLL_MAX_SECONDS: Final = 1.0  # wake-ups are hints; correctness rests on this poll
POLL_JITTER: Final = 0.2  # nodes that started together must not poll together
NOTIFY_EVERY_SECONDS: Final = 0.1  # such a commit locks all databases of a server
HEAR_EVERY_SECONDS: Final = (
    0.05  # a claim each: notified by two others it waits for none
)
COMMIT_GRACE_SECONDS: Final = 0.02  # a COMMIT's length, where only its start is told
RINGS_MAX: Final = 100  # hints that wait to be sent; each wakes for all before it
LISTEN_CHECK_SECONDS: Final = 30.0  # a silent connection is asked whether it lives
LISTEN_ECHO_SECONDS: Final = 2.0  # for a notification to itself to come back
LISTEN_CLOSE_SECONDS: Final = 1.0  # for a server that hangs while this node stops
LISTEN_BACKOFF_MIN_SECONDS: Final = 0.5  # before a lost listener connects again
LISTEN_BACKOFF_MAX_SECONDS: Final = 30.0  # it doubles up to here; the poll works on
SLOTS: Final = 200  # attempts at once per node: memory and sockets stay bounded
LANE_SLOTS_MIN: Final = 4  # a lane holds max(this, slots / LANE_SLOTS_DIVISOR)
LANE_SLOTS_DIVISOR: Final = 8  # eight busy lanes fill a node, one never does
SLOW_AFTER_SECONDS: Final = 2.0  # a lane whose oldest attempt runs longer is slow
SLOW_SHARE: Final = 0.5  # slow lanes together start nothing beyond this share of slots
DRAIN_SECONDS: Final = 30.0  # SIGTERM to end; the grace period that supervisors give
DRAIN_SETTLE_SECONDS: Final = 5.0  # after the cut, for results to be written
HOUSEKEEPING_SECONDS: Final = 10.0  # between two passes over what has passed its time
HOLD_BATCH_ROWS: Final = 2_000  # looked at per transaction; the open ones are written
ADOPTION_LOOK_SECONDS: Final = 5.0  # a copy that was adopted sends within it
CHORE_LEASE_SECONDS: Final = 60.0  # many times a step; then another node goes on
CHORE_REST_FACTOR: Final = 4  # a pass that took long comes again after so many times it
CHORE_REST_MAX_SECONDS: Final = DAY_SECONDS  # the longest such rest
RETENTION_PASS_SECONDS: Final = 900.0  # between two passes over what may be removed
PAYLOADS_PASS_SECONDS: Final = 10.0  # bytes past their time are promised to be gone
TASKS_PASS_SECONDS: Final = 10.0  # people look at a background task's progress
RETENTION_SHARE: Final = 0.2  # of the time that steps may take while there is something
RETENTION_PAUSE_SECONDS: Final = 0.05  # between two steps at least: others commit
RETENTION_MESSAGES: Final = 100  # per step: with three deliveries each, 1,500 rows
RETENTION_APPLICATIONS: Final = 20  # looked into per step
RETENTION_EXCHANGES: Final = 500  # looked at per step, most are emptied or kept
RETENTION_ROWS: Final = 500  # removed per step of anything small
RELEASES_WARN: Final = 10  # a row handed back so often points at a fault of ours

# --- Quarantine: a row that kills nodes ----------------------------------------------
SUSPECT_LOSSES: Final = 2  # from here a row runs alone
QUARANTINE_LOSSES: Final = 5  # not alone at the loss: parked at the fifth only
SUSPECT_ALONE_SECONDS: Final = 10.0  # how long a suspect may keep a node to itself
SUSPECT_BACKOFF_SECONDS: Final = 10.0  # after the second loss; the first is at once

# --- Claiming ------------------------------------------------------------------------
WALK_LANES: Final = 256  # lanes per walk step: 1.3 ms on PostgreSQL
WALK_PLACES_MAX: Final = 10_000  # groups of which a node remembers where it stopped
WALK_SHARE: Final = 0.1  # of wall time spent walking lanes that give nothing
LIMITED_LANES_FACTOR: Final = 2  # SKIP LOCKED leaves a third to others: try twice
PROMOTE_ROWS: Final = 500  # later → due per batch: 9 ms
BORN_SHARE: Final = 0.5  # of the slots that rows may hold from their acceptance on
RATE_AHEAD_SECONDS: Final = 1.0  # a claimed row may carry a start instant so far ahead
LANE_GROUP_BITS: Final = 24  # lane id = group << 24 | n: 16 million lanes per group

# --- Group commit ----------------------------------------------------------------------
BATCH_ROWS: Final = 100  # past this a batch gains nothing
BATCH_BYTES: Final = 1 * MIB  # one statement's parameters stay small
BATCH_WAIT_SECONDS: Final = 0.003  # the latency that a lone caller may pay
BATCH_QUEUE_MAX: Final = 10_000  # callers waiting for a commit; beyond: QueueFull
LOCK_TIMEOUT_SECONDS: Final = 0.2  # a row held by somebody else must not hold a batch
COMMIT_RETRIES_MAX: Final = 10  # 40001, 40P01 and a busy SQLite, each with jitter
SQLITE_RETRY_MIN_SECONDS: Final = 0.000_5  # own jittered retry, busy_timeout starves
SQLITE_RETRY_MAX_SECONDS: Final = 0.008
STATEMENT_SECONDS: Final = 15.0  # no statement of ours may take longer
# Of a beat: a connection that died without a word costs 11 s with its end, and with
# the beat before it 16 s, so that a node is back on a new one well before its fence.
BLOCKING_STATEMENT_SECONDS: Final = 8.0
CONNECT_SECONDS: Final = 5.0  # to open one database connection
CONNECTIONS: Final = 6  # per process, so that many processes fit one server
POSTGRESQL_POOL: Final = CONNECTIONS - 2  # the beat and the wake-ups have their own
# Threads take turns in the interpreter: its default of 5 ms, paid after each statement
# of the writer while the event loop is busy, was three quarters of a batch.
SQLITE_SWITCH_SECONDS: Final = 0.000_5
SQLITE_READERS: Final = 2  # threads; more only share the two cores of a small host
SQLITE_WAIT_SECONDS: Final = 10.0  # for the write lock of another process
RETRY_PAUSE_MIN_SECONDS: Final = 0.005  # after a deadlock or a lock timeout
RETRY_PAUSE_MAX_SECONDS: Final = 0.25
IDLE_IN_TRANSACTION_SECONDS: Final = 30.0  # a node that hangs must not hold locks
MIGRATION_SECONDS: Final = 600.0  # one statement of a migration: an index on history
MIGRATION_LOCK_SECONDS: Final = 0.1  # waiting DDL blocks all behind it: half of theirs
MIGRATION_QUEUE_SECONDS: Final = 120.0  # for another node that migrates; blocks nobody
MIGRATION_WAIT_SECONDS: Final = 60.0  # for tables in use, trying again and again
MIGRATION_PAUSE_SECONDS: Final = 1.0  # between two tries: the queue behind them empties
REASON_MAX: Final = 200  # characters; longer text lives beside the row, never in it

# --- Messages ------------------------------------------------------------------------
PAYLOAD_BYTES: Final = 1 * MIB  # default cap of a message's body
PAYLOAD_HARD_BYTES: Final = 64 * MIB  # what the cap may be raised to
CHANNELS_PER_MESSAGE_MAX: Final = 5  # as in the Svix API
CHANNELS_PER_ENDPOINT_MAX: Final = 10  # as in the Svix API
TAGS_MAX: Final = 10
NAME_MAX: Final = 256  # characters of a uid, event type, channel, tag or name
UID_MAX: Final = 256  # characters of a caller's own id
DESCRIPTION_MAX: Final = 4096  # characters
METADATA_MAX: Final = 4096  # characters of all keys and values together
IDEMPOTENCY_KEY_MAX: Final = 256  # characters
IDEMPOTENCY_SECONDS: Final = 1 * DAY_SECONDS  # how long a key is remembered
PAYLOAD_RETENTION_MIN_SECONDS: Final = 5 * DAY_SECONDS  # as in the Svix API
PAYLOAD_RETENTION_MAX_SECONDS: Final = 90 * DAY_SECONDS  # as in the Svix API; default
HISTORY_DAYS: Final = 90  # messages, work and attempts after they are over
HISTORY_DAYS_MAX: Final = 3_650  # ten years
RESPONSE_DAYS: Final = 30  # what receivers answered, after the delivery is over
ROUTE_TABLES_MAX: Final = 10_000  # applications whose endpoints a node remembers
ENDPOINT_CONFIGS_MAX: Final = 10_000  # endpoints whose opened secrets a node remembers
CANCEL_BATCH_ROWS: Final = 1_000  # open work ended per transaction of a deletion
ACCEPT_ROUNDS_MAX: Final = 100  # = BATCH_ROWS: equal keys in one batch go one by one

# --- Endpoints -------------------------------------------------------------------------
ENDPOINTS_PER_APPLICATION_MAX: Final = 1_000  # one message makes at most so many rows
HEADERS_MAX: Final = 50  # per endpoint
HEADERS_BYTES: Final = 16 * KIB  # names and values together
FILTER_BYTES: Final = 4 * KIB  # of one expression
URL_MAX: Final = 4096  # characters
SECRET_GRACE_SECONDS: Final = 86_400  # a rotated secret stays valid so long by default
SECRET_GRACE_MAX_SECONDS: Final = 604_800  # 7 days
OLD_SECRETS_MAX: Final = 10  # live old secrets; each one adds a signature
SECRET_MIN_BYTES: Final = 24  # of a signing key's bytes, as in the Svix API
SECRET_MAX_BYTES: Final = 75
SIGNATURE_TOLERANCE_SECONDS: Final = 300.0  # of a receiver's clock: Standard Webhooks
HEADER_VALUE_BYTES: Final = 4 * KIB  # of one header value, as in the Svix API
CHANNEL_MAX: Final = 128  # characters of a channel, as in the Svix API
THROTTLE_RATE_MAX: Final = 65_535  # messages per second, as in the Svix API
SCHEMA_BYTES: Final = 64 * KIB  # of one event type's JSON Schema, as JSON
SCHEMAS_MAX: Final = 50  # versions of one event type's schema

# --- Sending ---------------------------------------------------------------------------
REQUEST_SECONDS: Final = 15.0  # total deadline: connect, TLS, request, headers, body
REQUEST_MIN_SECONDS: Final = 1.0
REQUEST_MAX_SECONDS: Final = 60.0  # = SHORT_DEADLINE_SECONDS: no send outlives its node
RESPONSE_BYTES: Final = 32 * KIB  # kept and read; the rest is not downloaded
RESPONSE_HEADERS_MAX: Final = 100  # a response with more is a protocol error
RESPONSE_LINE_BYTES: Final = 16 * KIB  # one response header, name and value
RESPONSE_HEADERS_BYTES: Final = 64 * KIB  # all response headers and trailers together
INFORMATIONAL_MAX: Final = 10  # 1xx responses before the real one
FAILURE_DETAIL_MAX: Final = 200  # characters that say why no response came
HEAD_SHAPES_MAX: Final = 1_024  # sets of header names whose check is remembered
IDLE_PER_KEY_MAX: Final = 256  # endpoints of one host share a key: all slots at most
IDLE_TOTAL_MAX: Final = 512  # kept-alive connections of one client: file descriptors
IDLE_SECONDS: Final = 30.0  # most servers close an idle connection after 60 s or more
CONNECTION_AGE_SECONDS: Final = 300.0  # a busy one must not outlive a change of address
DIAL_STAGGER_SECONDS: Final = 0.25  # connection attempt delay of RFC 8305
DIAL_ADDRESSES_MAX: Final = 8  # of one name; a hostile zone may list thousands
TLS_SHUTDOWN_SECONDS: Final = 1.0  # for the peer's close_notify; nobody waits for it
DNS_TTL_MIN_SECONDS: Final = 1.0  # a TTL of 0 must not mean a lookup per request
DNS_TTL_MAX_SECONDS: Final = 60.0  # a moved receiver is found again within it
DNS_NEGATIVE_SECONDS: Final = 2.0  # a name that failed is asked again after it
DNS_CACHE_MAX: Final = 4_096  # names; the ones asked longest ago go first
DNS_LOOKUPS_MAX: Final = 64  # at once; more wait within their own deadlines
DNS_LOOKUP_SECONDS: Final = 10.0  # one lookup, whoever waits for it

# --- Retries ---------------------------------------------------------------------------
RETRY_SECONDS: Final[tuple[float, ...]] = (  # delay before each attempt, 27.6 h in all
    0.0,
    5.0,
    5 * 60.0,
    30 * 60.0,
    2 * 3600.0,
    5 * 3600.0,
    10 * 3600.0,
    10 * 3600.0,
)
RETRY_STEPS_MAX: Final = 100  # length of an endpoint's own list
RETRY_JITTER: Final = 0.2  # ± this share, so that failures do not return as one wave
RETRY_AFTER_MAX_SECONDS: Final = 1 * DAY_SECONDS  # hostile values end here
TIME_BUDGET_SECONDS: Final = 3 * DAY_SECONDS  # from the first attempt
AUTO_DISABLE_SECONDS: Final = 5 * DAY_SECONDS  # of nothing but failures

# --- API keys ---------------------------------------------------------------------------
API_KEY_BYTES: Final = 32  # of randomness in a token

# --- API -------------------------------------------------------------------------------
LIST_DEFAULT: Final = 50
LIST_MAX: Final = 250
LIST_BYTES: Final = 16 * MIB  # of payloads in one page; it ends early there
REQUEST_ENVELOPE_BYTES: Final = 64 * KIB  # of a request around its payload
REQUEST_HEADERS_BYTES: Final = 32 * KIB  # request line and header block together
DISCARD_BYTES: Final = 16 * MIB  # read on and dropped, so that a refusal is seen
DISCARD_SECONDS: Final = 2.0  # at most so long
REQUEST_BODY_SECONDS: Final = 30.0  # a client that sends its body slower is cut
KEY_CACHE_SECONDS: Final = 2.0  # a revoked key works on for at most this long
KEY_CACHE_MAX: Final = 1_000  # verified keys remembered per node
SCHEMA_CACHE_SECONDS: Final = 2.0  # another node goes by a former schema so long
SCHEMA_CACHE_MAX: Final = 1_000  # event types whose rule a node remembers
SCHEMA_FAULTS_SHOWN: Final = 20  # of one payload
SCHEMA_INLINE_BYTES: Final = 16 * KIB  # larger payloads are judged on a thread
OVERVIEW_CACHE_SECONDS: Final = 2.0  # the overview costs a pass over the rows
OVERVIEW_CACHE_MAX: Final = 100  # overviews remembered per node
CLOCK_SKEW_SECONDS: Final = 300.0  # how far a caller may be ahead of us
STATS_DAYS_MAX: Final = 28  # window of an endpoint's statistics, as in the Svix API
EXPRESSION_BYTES: Final = 4_096  # of one CEL filter or transform
EXPRESSION_NESTED_MAX: Final = 2  # macros inside of each other; three took seconds
EXPRESSION_JOINS_MAX: Final = (
    8  # `+` and `*` of an expression that runs where it stands
)
EXPRESSION_NAMES_MAX: Final = 32  # names in it: each may copy a part of the body
EXPRESSION_INLINE_BYTES: Final = 8 * 1024  # of a body that it runs over there: 1 ms
EXPRESSION_SECONDS: Final = (
    0.5  # of a processor, for any other, in a process of its own
)
EXPRESSION_WAIT_SECONDS: Final = 5.0  # for its answer, on a machine that is busy
EXPRESSION_REST_SECONDS: Final = 10.0  # of one that ran past its bound
EXPRESSIONS_KEPT: Final = 1_000  # compiled ones that a node remembers
EXPRESSION_ROUNDS_MAX: Final = 4  # of finding verdicts for one message
DROP_HEADERS_MAX: Final = 100  # names that an endpoint does not pass on
COORDINATE_MAX: Final = 100  # characters of a package's name, and of a name in it
LOGGED_BODY: Final = 2_000  # characters of a body in one line of the log
CHAT_TEXT: Final = 3_500  # characters of a body in a chat message
CHAT_THREADS: Final = 8  # chat clients block; a node's other attempts go on beside
HANDLER_THREADS: Final = 16  # of functions that block; more wait for one to return

# --- Inbox -----------------------------------------------------------------------------
SOURCES_MAX: Final = 10_000  # per tenant; a source is a configuration, not a customer
RECEIPT_BYTES: Final = 10 * MIB  # default cap of one request's body
RECEIPT_BYTES_MAX: Final = 64 * MIB  # what a source may raise it to: held in memory
SOURCE_SECRETS_MAX: Final = 10  # live at once: more than a rotation ever needs
SOURCE_NETWORKS_MAX: Final = 200  # CIDR blocks that a source may list
SOURCE_CONFIGS_MAX: Final = 10_000  # sources that a node remembers, with opened secrets
DEDUPE_SECONDS: Final = 24 * 3600.0  # default window of a provider's event id
DEDUPE_MAX_SECONDS: Final = 29 * 24 * 3600.0  # receipts are kept for longer
DEDUPE_KEY_MAX: Final = 256  # characters; longer keys are kept as their hash
RECEIPT_DAYS: Final = 30  # how long a receipt is kept once its work is over
LISTEN_BATCH: Final = 50  # receipts that a listener gets at once
LISTEN_WAIT_MAX_SECONDS: Final = 25.0  # that a listener's request may wait for one
LISTEN_POLL_SECONDS: Final = 0.25  # between two looks for a waiting listener
LISTEN_BEAT_SECONDS: Final = 15.0  # between two signs of life of a silent stream
LISTEN_TURN_SECONDS: Final = 2.0  # a waiting command looks at its keys so often
LISTEN_RETRY_SECONDS: Final = 1.0  # between two looks for a server that is away
LISTENERS_MAX: Final = 100  # that wait at one process
LISTENER_DAYS: Final = 400  # a listener's cursor that nobody moved since goes
REFUSED_KEPT: Final = 50  # newest refused receipts of a source that people can look at
REFUSED_BODY_BYTES: Final = 64 * 1024  # of a refused body: enough to see why
REFUSED_QUEUE_MAX: Final = 1_000  # refusals waiting to be written; beyond, only counted
REFUSED_FLUSH_SECONDS: Final = 0.5  # between two writes of refusals
PULL_BATCH: Final = 100  # messages of a broker in one fetch: as many as a commit takes
PULL_WAIT_SECONDS: Final = 1.0  # for a message before a fetch returns without one
PULL_CONNECT_SECONDS: Final = 5.0  # for a broker to answer
PULL_IDLE_SECONDS: Final = 60.0  # after which another consumer's entry is taken over
PULL_LOOK_SECONDS: Final = 5.0  # between two looks at which sources pull
PULL_REST_SECONDS: Final = 1.0  # after a broker failed, doubled each time
PULL_REST_MAX_SECONDS: Final = 60.0  # longest of these
RECEIPT_RETRY_AFTER_SECONDS: Final = 5  # told to senders while the database is away
RECEIPT_STALE_ROUNDS_MAX: Final = (
    4  # a source that changes more often during one accept
)
PROOF_BYTES: Final = 16 * 1024  # of a header that carries a signature
PROOFS_MAX: Final = 20  # signatures in one header: more only cost time
TOLERANCE_MAX_SECONDS: Final = 24 * 3600.0  # a signed instant may be off by, at most
RECEIVING_BYTES_MAX: Final = 256 * MIB  # bodies that one process holds unanswered
RECEIPT_EVENTS_MAX: Final = 1_000  # events in one CloudEvents batch
RATE_COUNT_MAX: Final = 1_000_000  # receipts per window that a source's limit may allow
RATE_WINDOW_MAX_SECONDS: Final = 24 * 3600.0  # of a source's rate limit
REQUEST_ID_MAX: Final = 128  # characters of a caller's X-Request-Id
# By default the server takes no more than its backlog: as many silent clients would keep
# everybody else waiting until the header time is over.
CONNECTIONS_HELD_MAX: Final = 16_384  # of clients, at one process
REQUEST_HEADER_SECONDS: Final = 10.0  # a client that sends its headers slower is cut

# --- Metrics and health --------------------------------------------------------------------
METRICS_CACHE_SECONDS: Final = 5.0  # one look at the database for all who ask meanwhile
METRIC_LABELS_MAX: Final = 64  # different reasons and causes on one metrics page
GAUGE_LANES: Final = 256  # lanes with due rows that one look visits: one walk step
GAUGE_ROWS: Final = 200  # due rows counted of each: 51,200 index entries at most
LAG_EVERY_SECONDS: Final = 0.5  # between two looks at the event loop
LAG_LOOKS: Final = 6  # all of the last three seconds must be late to be red
LAG_MAX_SECONDS: Final = 1.0  # a loop that is late by more is not given traffic
HEALTH_SECONDS: Final = 3.0  # that the database has to answer a health page

EXPLAIN_AHEAD_MAX: Final = 1_000  # rows before one that an explanation counts

# --- Doctor ------------------------------------------------------------------------------
DOCTOR_PAGE_ROWS: Final = 1_000  # read in one snapshot: some 20 ms of an event loop
DOCTOR_BATCH_ROWS: Final = 100  # looked at again, or healed, in one transaction
DOCTOR_SUSPECTS_MAX: Final = 1_000  # of one check that are looked at again
DOCTOR_SHOWN_MAX: Final = 20  # rows of one check that are listed; the rest is counted
DOCTOR_RELOOK_SECONDS: Final = 1.0  # before the second look: a moment's work is over
DOCTOR_LATE_SECONDS: Final = 60.0  # that a row may be overdue before it is asked why
DOCTOR_LANES_MAX: Final = 10_000  # lanes with due rows that one examination looks at
DOCTOR_BACKLOG_SECONDS: Final = 3_600.0  # that retention may be behind

# --- Command line and receivers for tests -------------------------------------------------
CLIENT_SECONDS: Final = 30.0  # one call of the command line to the server
SEND_WAIT_SECONDS: Final = 20.0  # `tenure send` waits so long for an answer
WATCH_SECONDS: Final = 0.25  # between two looks of a command that waits
TAIL_SECONDS: Final = 1.0  # between two looks of `messages tail`
HTTP_STOP_SECONDS: Final = 2.0  # for answers under way, before and after the drain
CHILD_BACKOFF_MIN_SECONDS: Final = 0.5  # before a process of `serve` that died returns
CHILD_BACKOFF_MAX_SECONDS: Final = 15.0  # it doubles up to here
CHILD_HEALTHY_SECONDS: Final = 60.0  # a process that ran so long starts afresh at once
PORT_WAIT_SECONDS: Final = 2.0  # for a port that a killed deployment still holds
PORTS_TRIED_MAX: Final = 20  # by `tenure demo`, when the first is taken
DEMO_SECONDS: Final = 300.0  # how long the demo goes on making messages
DEMO_PER_SECOND: Final = 3.0  # messages of the demo
RECEIVER_BODY_BYTES: Final = 64 * MIB  # of one request; the same as the hard cap
RECEIVER_WAIT_SECONDS: Final = 10.0  # for a request that a test expects
VIRTUAL_PATIENCE_SECONDS: Final = 60.0  # real ones, for one instant of a virtual engine

# --- Crash lab ---------------------------------------------------------------------------
LAB_MESSAGES: Final = 2_000  # unless told: minutes for all scenarios, not hours
LAB_ENDPOINTS: Final = 3  # each gets every message
LAB_PROCESSES: Final = 3  # on PostgreSQL: one dies, two go on
LAB_CALLERS: Final = 16  # submits at once: a busy client, not a load test
LAB_CALL_SECONDS: Final = 20.0  # of one submit, then it is asked again
LAB_AGAIN_SECONDS: Final = 0.1  # before it is: nodes that restart are not stormed
LAB_ANSWER_SECONDS: Final = 0.005  # of the receiver: so that requests are in flight
LAB_KILL_SECONDS: Final = 2.0  # between two kills: a process is back within one
LAB_BUSY_SECONDS: Final = 1.0  # for a process to hold something before it is killed
LAB_ALONE_SECONDS: Final = 30.0  # for suspects that run alone to end before that
LAB_BACKENDS_SECONDS: Final = 0.5  # between two rounds of ended connections
LAB_SQLITE_KILLS: Final = 20  # of the one process, spread over its requests
LAB_LOOK_SECONDS: Final = 0.05  # between two looks at what is waited for
LAB_READY_SECONDS: Final = 60.0  # for a process to answer, on a host that is busy
LAB_END_SECONDS: Final = 45.0  # for a process to end: its drain and some more
LAB_POSTGRES_SECONDS: Final = 60.0  # for the server to recover, copy or follow
LAB_STILL_SECONDS: Final = 120.0  # nothing moved: longer than any back-off after a loss
LAB_SHOWN_MAX: Final = 20  # examples of what was doubled or found

TIME_FACTOR_VARIABLE: Final = "TENURE_TEST_TIME_FACTOR"
TIME_FACTOR_MAX: Final = 1_000.0  # beyond it scheduling noise breaks the ratios


@dataclass(frozen=True, slots=True, kw_only=False)
class Durations:
    """The kernel's durations in seconds, all divided by one factor.

    A factor above 1 makes time pass faster for a whole test run; the ratios that the
    promises rest on stay. Production never sets it.
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        if not (isfinite(self.factor) and 0 < self.factor <= TIME_FACTOR_MAX):
            msg = (
                f"{TIME_FACTOR_VARIABLE} is {self.factor!r}: "
                f"give a number above 0 and at most {TIME_FACTOR_MAX:g}"
            )
            raise ConfigInvalid(msg)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Durations":
        """Read the factor from the environment; 1 when it is not set.

        Raises ConfigInvalid when the value is no number in range.
        """
        text = environ.get(TIME_FACTOR_VARIABLE, "").strip()
        if not text:
            return cls()
        try:
            return cls(float(text))
        except ValueError:
            msg = f"{TIME_FACTOR_VARIABLE} is {text!r}: give a number such as 10"
            raise ConfigInvalid(msg) from None

    def scaled(self, seconds: float) -> float:
        """Return ``seconds`` (a retry delay, a deadline) as this run counts it."""
        return seconds / self.factor

    @property
    def beat_seconds(self) -> float:
        """Between two beats of a node."""
        return BEAT_SECONDS / self.factor

    @property
    def reconcile_age_seconds(self) -> float:
        """Age from which a claim that only the database knows is released."""
        return RECONCILE_AGE_SECONDS / self.factor

    @property
    def fence_seconds(self) -> float:
        """Since the last good beat, after which nothing more starts."""
        return FENCE_SECONDS / self.factor

    @property
    def dead_after_seconds(self) -> float:
        """Of an unchanged beat number, after which a node may be closed."""
        return DEAD_AFTER_SECONDS / self.factor

    @property
    def stall_grace_seconds(self) -> float:
        """Past its deadline, after which a stalled node's row is lost."""
        return STALL_GRACE_SECONDS / self.factor

    @property
    def short_deadline_seconds(self) -> float:
        """Longest deadline of kinds whose rows are lost after it only."""
        return SHORT_DEADLINE_SECONDS / self.factor

    @property
    def file_lock_check_seconds(self) -> float:
        """Between two looks at the file locks of peers on this host."""
        return FILE_LOCK_CHECK_SECONDS / self.factor

    @property
    def poll_max_seconds(self) -> float:
        """Longest sleep of the worker loop while any lane is open."""
        return POLL_MAX_SECONDS / self.factor

    @property
    def slow_after_seconds(self) -> float:
        """Age of a running attempt from which its lane is slow."""
        return SLOW_AFTER_SECONDS / self.factor

    @property
    def suspect_alone_seconds(self) -> float:
        """Longest time that a suspect keeps a node to itself."""
        return SUSPECT_ALONE_SECONDS / self.factor

    @property
    def suspect_backoff_seconds(self) -> float:
        """Delay after a row's second loss."""
        return SUSPECT_BACKOFF_SECONDS / self.factor

    @property
    def drain_seconds(self) -> float:
        """Longest time from SIGTERM to the end."""
        return DRAIN_SECONDS / self.factor

    @property
    def request_seconds(self) -> float:
        """Total deadline of one send unless its endpoint says otherwise."""
        return REQUEST_SECONDS / self.factor

    @property
    def retry_seconds(self) -> tuple[float, ...]:
        """Delay before each attempt unless the endpoint says otherwise."""
        return tuple(delay / self.factor for delay in RETRY_SECONDS)

    @property
    def retry_after_max_seconds(self) -> float:
        """Longest Retry-After that is honoured."""
        return RETRY_AFTER_MAX_SECONDS / self.factor

    @property
    def time_budget_seconds(self) -> float:
        """From the first attempt, after which a failure is final."""
        return TIME_BUDGET_SECONDS / self.factor
