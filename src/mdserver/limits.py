"""Every number that bounds something, in one place.

Each queue, cache, timeout and size has its limit here, with its unit in the name and the reason
beside it. A limit that an operator can change has its default here and its parameter in
`mdserver.config`; the others are fixed by the protocol or by measurement. The names `..._AT_ONCE`
and `..._PER_STEP` bound the work of one step, so that no client holds up the others for more than
some milliseconds.
"""

KB = 1024
MB = 1024 * KB
GB = 1024 * MB

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000

# Close codes (docs/protocol.md, "Closing"; RFC 6455 section 7.4 for the ones below 4000).
CLOSE_NORMAL = 1000
CLOSE_GOING_AWAY = 1001
CLOSE_TOO_BIG = 1009
CLOSE_INTERNAL_ERROR = 1011
CLOSE_MOVED = 4000
CLOSE_SLOW_CONSUMER = 4001
CLOSE_NO_QUORUM = 4002
CLOSE_SHUTTING_DOWN = 4003
CLOSE_KEEPALIVE_MISSED = 4004
CLOSE_TOKEN_EXPIRED = 4005
CLOSE_BUSY = 4006
CLOSE_PROTOCOL_ERROR = 4100
CLOSE_CONNECT_DENIED = 4101

PROTOCOL_VERSION = 1
SUBPROTOCOL_JSON = "mdserver.v1.json"
SUBPROTOCOL_BINARY = "mdserver.v1"
# What is due at once, such as a long history, goes in several messages: a client bounds the length
# of one, and takes nothing of it for a sign of life before all of it is there.
WEBSOCKET_MESSAGE_BYTES = 256 * KB

# Subjects
SUBJECT_BYTES_MAX = 1024
SUBJECT_SEGMENTS_MAX = 32  # the highest value of `SubjectMaxSegments`
SUBJECT_SEGMENTS = 16
SUBJECTS_PER_COMMAND_MAX = 10_000
SUBJECT_GROUPS = 128
SUBJECT_GROUPS_MAX = 4096  # the highest value of `ClusterSubjectGroups`

# Messages
MESSAGE_BYTES_MAX = 64 * KB
FIELDS_MAX = 256
WEBSOCKET_SLACK_BYTES = 64 * KB  # above four times MaxMessageSize, for the JSON around it
CLOSURE_BYTES_MAX = 256
PUBLISHER_BYTES_MAX = 128
TOKEN_BYTES_MAX = 16 * KB
RECEIPTS_PER_COMMAND_MAX = 1000
# Receipts of one session, and of one address, in RECEIPTS_S: about 2 MB and 20 MB of the journal.
RECEIPTS_PER_SESSION_MAX = 5_000
RECEIPTS_PER_ADDRESS_MAX = 50_000
RECEIPTS_S = 60
# Numbers in a receipt: far beyond what a minute has, and their sums fit into 64 bits in the audit.
RECEIPT_SEQ_MAX = 2**62 - 1
RECEIPT_COUNT_MAX = 2**32
RECEIPTS_ADDRESSES_MAX = 20_000  # addresses whose receipts are counted, the most recent ones
# Bytes that are checksummed to confirm receipts: of a session in RECEIPTS_S, and in one step.
RECEIPT_CONFIRM_BYTES_MAX = 16 * MB
RECEIPT_CONFIRM_BYTES_AT_ONCE = 2 * MB
RECEIPT_ENTRY_BYTES = KB  # what a message counts besides its content: 2,000 take some 2 ms
RECEIPT_VISIT_BYTES = 128  # what the visit of a pattern or message counts
SUBSCRIPTIONS_ENDED_MAX = 64  # of a session, about which receipts may still come
MALFORMED_MAX = 100  # commands of a session that are answered by an `error` each
HINTS_MAX = 3  # of those errors, how many name the nearest command: the search takes time

# Cache
CACHED_MESSAGES_PER_SUBJECT = 1000
CACHED_MESSAGES_PER_SUBJECT_MAX = 1_000_000
CACHE_EXPIRE_S = 180
SUBJECTS_MAX = 1_000_000
CACHE_BYTES_MAX = 1024 * MB
ENTRY_OVERHEAD_BYTES = 400  # of a cached message, besides its content and fields
SNAPSHOT_FIELDS_MAX = FIELDS_MAX  # so that one publication can still carry all of them
SNAPSHOT_FIELDS_MESSAGES_MAX = 3  # times MaxMessageSize, for the fields of a snapshot
EXPIRED_AT_ONCE = 5_000  # messages and snapshots that leave the cache by age in one step: some 5 ms
EXPIRE_PAUSE_MS = 1  # between two such steps
RESERVATION_S = 60  # how long a subject is kept while its first publication has no result
VALID_SUBJECTS_KEPT = 65_536  # subjects that were checked and need not be checked again
EMPTY_PATTERNS_KEPT = 4096  # empty branches of the tree of patterns
AUDIENCES_MAX = 100_000  # subjects whose list of subscribed sessions is cached

# Sessions
SUBSCRIPTIONS_PER_SESSION_MAX = 100_000
PINGS_WAITING_MAX = 16  # pings with `caught_up` of a session that wait for its subscriptions
PATTERNS_PER_SESSION_MAX = 1_000
CONNECTIONS_MAX = 100_000
CONNECTIONS_EXPECTED = 10_000  # if the limit of open files allows fewer, the server warns
CONNECTIONS_PER_ADDRESS_MAX = 1000
OUTBOX_BYTES_MAX = 1 * MB
WAITING_MESSAGE_OVERHEAD_BYTES = 700  # of a waiting message, besides its content and frame
WAITING_FRAME_OVERHEAD_BYTES = 48
CATCH_UP_BYTES_MAX = 64 * MB  # history and recovery that wait for one client
RECEIVE_BYTES_MAX = 1 * MB
FIRST_BYTES_MAX = 64 * KB  # of a message before `connected`, while tokens decide
UNFINISHED_BYTES_MAX = 64 * MB  # incomplete messages and requests of all connections
UNFINISHED_FREE_BYTES = 16 * KB  # of each connection, not counted: a request's head, a `connect`
ANSWERS_BYTES_MAX = 256 * MB  # histories that are being sent over HTTP, of all connections
ANSWER_BYTES_MAX = 64 * MB  # one such history
ANSWER_PART_BYTES = 64 * KB  # how much of it is encoded and sent at a time
HANDSHAKE_TIMEOUT_S = 10
KEEPALIVE_INTERVAL_S = 25
TURN_MS = 2  # how long one reader may work before the others get a turn
FRAMES_AT_ONCE = 256  # of WebSocket, some 0.7 ms of reading, before the clock is read again
COMMANDS_PER_STEP = 64  # at first: this many commands that deliver much take some milliseconds
COMMANDS_PER_STEP_MAX = 256  # once steps prove cheap; more would save little
SUBJECTS_PER_STEP = 250  # of a command with many subjects, which takes several steps
CONNECTS_SAVED_NS = 50 * NS_PER_MS  # of `MaxConnectRate`: more at once would be felt by others
RATED_ADDRESSES_KEPT = 10_000  # addresses whose rates are kept, before idle ones are forgotten
LINGER_MS = 500  # after the last byte, so that the client reads it before the socket is reset
REFUSED_LINGERING_MAX = 64  # refused connections that linger; half of the reserved descriptors
REFUSED_BYTES_MAX = 64 * KB  # read of a request that is refused because of such a limit
CLOSE_TIMEOUT_S = 5  # for the other side's half of a closing handshake
WRITE_TIMEOUT_S = 30  # without progress, while a client does not read what waits for it
MONITOR_CONNECTIONS_MAX = 1000
SESSIONS_SHOWN_MAX = 10_000
SUBSCRIPTIONS_SHOWN_MAX = 1000  # of a session, to operators
SUBJECTS_SHOWN_MAX = 1000
LOG_LEVEL_MINUTES_MAX = 1440  # for which an operator may raise the log level
DRAIN_TIMEOUT_S = 30
DRAIN_SESSIONS_PER_S = 2000  # how fast sessions are sent to the other members
DRAIN_SPREAD_MS_MIN = 200
DRAIN_HAND_OVER_S = 5  # how long a member that ends waits for others to take its groups
OUT_OF_SERVICE_LOGGED_S = 10  # a change of coordinators takes 2 to 3 s, all of a start rarely more
DRAIN_GRACE_MS = 1000  # beyond the spread, for the clients that move last
CONFLATION_STEP_MS = 100
CONFLATION_MS_MAX = 24 * 3600 * 1000
SSE_SUBJECTS_MAX = 64
PRESENCE_CALLS_PENDING_MAX = 100_000
PRESENCE_DEADLINE_S = 10
SSE_POSITIONS_MAX = 64  # in the id of an event, some 40 bytes each
SSE_POSITIONS_BYTES_MAX = 4 * KB  # of their names: the id has to fit into the head of a request
SSE_PLACES_MAX = 512  # subject groups whose place an id names, 7 bytes each
KEEPALIVE_MS_MIN = 1000
VERDICTS_PENDING_MAX = 100_000  # questions that wait for a custom entitlement class, 300 bytes each
VERDICTS_AT_ONCE = 1_000  # questions that such a class is asked at the same time
VERDICTS_PER_SESSION_AT_ONCE = 16  # of these, about one session, so that others get their turn
VERDICT_WAIT_S = 30  # how long a question waits for its turn before it is answered with "busy"
RECHECKS_AT_ONCE = 16  # subscriptions of a session that are checked again after a new token
VERDICT_DEADLINE_S = 5
HELD_COMMANDS_MAX = 10_000  # commands of one session that wait for an entitlement verdict
WORK_AT_ONCE = 5000  # subjects and patterns visited in a step for new subscriptions: some 3 ms
SUBJECTS_COMPARED = 1000  # for the one to be forgotten first, once there are too many: some 0.5 ms
SUBJECTS_AT_ONCE = 1000  # of one command, or of a session that ends, handled in one step
CONFLATED_AT_ONCE = 2000  # messages whose windows end in one step
BROUGHT_AT_ONCE = 1000  # outputs of a step beyond which new subscriptions wait for the next step
STEP_PAUSE_MS = 1  # between two such steps
AHEAD_WAIT_S = 10  # how long a subscriber waits whose position is ahead of this member
TOKEN_RENEW_BEFORE_S = 60

# Numbered publications (docs/protocol.md, "Numbered publications")
PUBLISHER_NUMBERS_KEPT = 1000
# Numbers of one series: a week of 100,000 a second. JavaScript counts exactly up to 131,072 series.
PUBLISHER_SERIES_NUMBERS = 2**36
PUBLISHER_IDENTITY_CHARS_MAX = 2 * PUBLISHER_BYTES_MAX + 2  # user, name and two signs
PUBLISHER_KEY_CHARS_MAX = 128  # more than a key has today, so that keys can become longer
PUBLISHER_RANDOM_BYTES = 12  # enough that no two publishers draw the same
PUBLISHER_SECRET_BYTES = 32
PUBLISHER_IDLE_S = 3600
PUBLICATIONS_PER_REQUEST_MAX = 1000  # in one body of JSON
IDEMPOTENCY_KEY_CHARS_MIN = 16  # shorter keys can be guessed
IDEMPOTENCY_KEY_CHARS_MAX = 256
PUBLISHERS_MAX = 100_000  # of all groups at one member: 1 KB each, and 60 for each number kept
# If a group has too many, an owner with more than an eighth of its share gives way first. Were it
# much more, two or three clients could take all; were it less, a service would lose its own early.
PUBLISHERS_OWNER_PART = 8
PUBLISHERS_FORGOTTEN_AT_ONCE = 1000  # of a group in a second, so that a pass takes milliseconds
SUBJECTS_LOOKED_AT = 256  # of a group in a second, for idle ones: 20 ms for all of 128 groups
SUBJECTS_FORGOTTEN_BYTES = 64 * KB  # of their names, in one entry of a log

# HTTP heads and bodies, which arrive before a session exists
PROXY_HEADER_BYTES_MAX = 4 * KB  # after its first 16: addresses, and what some proxies add
HTTP_HEAD_BYTES_MAX = 16 * KB
HTTP_BODY_BYTES_MAX = 1 * MB
HTTP_CHUNKS_MAX = 1000  # of one body; a chunk costs far more than its bytes

# Configuration files
CONFIG_BYTES_MAX = 1 * MB

# Logs
LOG_QUEUE_BYTES_MAX = 8 * MB
STATS_LOG_INTERVAL_S = 60
STATISTICS_SAMPLE_MS = 1000  # of the windows, whose smallest bucket is a second
LOOP_DELAY_SAMPLE_MS = 100  # ten sleeps a second cost some 0.02 % of a core
STATISTICS_FILE_BYTES_MAX = 2 * MB  # seven indicators in four rings take 0.6 MB
STATISTICS_SAVE_S = 60  # how much of the windows is lost when a server is killed
PUSH_INTERVAL_S = 5  # a message takes some 0.3 ms of processor time with few sessions
PUSH_EVENTS_MAX = 1000  # waiting for a message; a change of coordinators makes some hundred
PUSH_EVENTS_PAUSE_MS = 100  # so that events that happen together are one message
PUSH_MISSED_MAX = 3  # intervals without a report after which a member counts as away
TRACED_PUBLICATIONS_PER_SECOND = 200  # a span takes some 50 us, and clients choose what is traced
TRACED_OPEN_MAX = 10_000  # publications with a time noted, or a fan-out that is not flushed
TRACED_AGE_S = 60  # older entries come from a log or a copy, and happened before
OTEL_INTERVAL_S = 60  # the default of the SDK
OTEL_SPANS_WAITING_MAX = 2048  # some 2 MB; the oldest are dropped while the collector is away
OTEL_SPANS_AT_ONCE = 512
OTEL_SPANS_PAUSE_S = 1
OTEL_TIMEOUT_S = 10  # of one request to the collector, repetitions included
OTEL_END_S = 3  # for what still waits at the end
OTEL_TROUBLE_S = 60  # between two lines of the server log about a collector that is away
JMX_START_S = 60  # Java compiles the program first
JMX_RESTART_S = 10  # so that a program that cannot run does not occupy a core
JMX_END_S = 5
JMX_INTERVAL_S = 5  # all MBeans take some 6 ms of processor time
JMX_REASON_CHARS_MAX = 500
JMX_OUTPUT_BYTES_MAX = 16 * KB  # of warnings that Java prints before the bridge is ready
JOLOKIA_NAME_CHARS_MAX = 256  # of a name or pattern, which is compared with all names
JOLOKIA_PATH_CHARS_MAX = 2048  # of a GET it has a name and a list of attributes
JOLOKIA_REQUESTS_MAX = 200  # in one array; the answer to one that lists everything has some 20 KB
REPORT_BYTES_MAX = 256 * KB  # of the statistics of another member
LINKS_MAX = 40  # on the way to a folder of the server; Linux follows as many
LOG_CLOSE_TIMEOUT_S = 5
LOG_FILE_BYTES_MAX = 20 * MB
LOG_FILES_MAX = 10
AUDIT_TEXT_CHARS_MAX = 512  # of one column of the audit logs
AUDIT_LINES_MAX = 200  # of one session in the access or presence log, in AUDIT_LINES_S
AUDIT_LINES_S = 10
AUDIT_MESSAGE_LINES_MAX = 20_000  # of one session in the message log: 2,000 publications a second
AUDIT_ADDRESS_LINES_MAX = 5_000  # of one address: all its connections begin anew, with five lines
AUDIT_ADDRESS_MESSAGE_LINES_MAX = 40_000  # of one address in the message log
AUDIT_SESSIONS_MAX = 20_000  # sessions whose lines are counted, the most recent ones
LOG_RENAME_RETRY_S = 60  # after a log file could not be renamed; until then it grows
LOG_FIRST_LINE_BYTES = 4096  # enough to hold the time of the first line

# Journal
JOURNAL_SEGMENT_BYTES_MAX = 64 * MB
JOURNAL_SEGMENT_S = 5
JOURNAL_BYTES_MAX = 10 * GB  # of the sealed segments of one stream
JOURNAL_AGE_DAYS_MAX = 7
JOURNAL_SYNC_S = 1  # `JournalFsync = interval`
JOURNAL_QUEUE_BYTES_MAX = 64 * MB  # beyond it lines are dropped and counted
JOURNAL_FULL_QUEUE_BYTES = 32 * MB  # beyond it publications are refused
JOURNAL_RETRY_S = 0.5  # between attempts to write to a disk that refuses
JOURNAL_CLEAN_S = 5  # between searches for segments that may be deleted
JOURNAL_CLOSE_TIMEOUT_S = 10
JOURNAL_STATS_S = 1
JOURNAL_SETTLE_S = 5  # for the first write, before a single server listens
JOURNAL_PORTION_BYTES = 1 * MB  # a larger record is written in portions of this size
JOURNAL_AHEAD_BYTES = 8 * MB  # of the stream `log`, given to the thread and not yet written
JOURNAL_HOLD_BYTES = 8 * MB  # of entries not yet on disk, before a coordinator adds no more
JOURNAL_BEHIND_BYTES = 64 * MB  # of entries not yet on disk, before a seed accepts no more
JOURNAL_LOG_BYTES_MIN = 64 * MB  # of the stream `log`, before it is compacted
JOURNAL_LOG_GROWTH = 2  # times its size after the last compaction, before the next one
JOURNAL_BEGUN_BYTES_MAX = 64 * KB  # of the line that names the writer, with all seeds
JOURNAL_CLOCK_SLACK_S = 60  # by which the times in rows and those of files may differ
JOURNAL_REREAD_BYTES_MAX = 256 * MB  # of rows that a start reads although their times are too old

# TLS 1.2 with forward secrecy and authenticated encryption only (RFC 9325, section 4.2); the suites
# of TLS 1.3 are all of that kind.
TLS_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
OWED_RECORDS_BYTES_MAX = 4 * KB  # records of TLS itself that a client provokes and does not read
# A record has at most 16,645 bytes, so after more than that a client has sent data, or does nothing
# but keep OpenSSL busy: 27 bytes of TLS 1.3 have it make new keys.
RECORDS_WITHOUT_DATA_BYTES_MAX = 17 * KB
SENT_TOGETHER_BYTES_MAX = 1 * MB  # in one call: with TLS each client has records of its own

STRICT_TRANSPORT_SECURITY_S = 365 * 86400  # a year, as the preload lists of browsers require

# Files with keys and secrets
PASSWORD_CHARS_MIN = 16  # a proof that is overheard allows guessing passwords offline, at any speed
KEY_FILE_BYTES_MAX = 1 * MB

# Clients
CLIENT_PUBLICATIONS_MAX = PUBLISHER_NUMBERS_KEPT  # without a result, over all groups
CLIENT_POSITIONS_MAX = SUBJECTS_MAX
CLIENT_COMMAND_BYTES_MAX = 48 * KB  # below WEBSOCKET_SLACK_BYTES, which every server accepts
CLIENT_JOIN_BYTES = 16 * KB  # frames are joined up to this size: a bad link still gets some through
CLIENT_OPEN_TIMEOUT_S = 10
CLIENT_CONNECT_TIMEOUT_S = (
    30  # for the first connection: every server is tried three times and more
)
CLIENT_SILENCE_S = 5  # of a server, before the client pings it
CLIENT_PONG_S = 5  # without a pong, before the client connects elsewhere
CLIENT_UPLOAD_BYTES_PER_S = 16 * KB  # a slow link may take this long besides to carry commands
CLIENT_LATE_S = 1  # a timer this late means that the client's own process stood still
CLIENT_PUBLISH_RETRY_S = 0.5
CLIENT_MOVE_JITTER_S = 0.5
CLIENT_STABLE_S = 10  # a connection that lasted this long was stable
RECONNECT_RATE_WINDOW_S = 180
CLIENT_CLOSE_TIMEOUT_S = 2
CLIENT_FAREWELL_S = 0.1  # for a close frame in a cancelled scope
CLIENT_DRAIN_TIMEOUT_S = 5  # for missing results when a client is left
CLIENT_PAYLOAD_BYTES_MAX = 16 * MB
CLIENT_INFLATED_BYTES_MAX = 8 * MB
CLIENT_NOTICES_MAX = 1000
CLIENT_BUFFER_MESSAGES = 10_000  # of a subscription; beyond this it is held, and recovered later
CLIENT_REQUEST_TIMEOUT_S = 30
CLIENT_RECEIPT_S = 60  # the longest time that one receipt covers
RECEIPTS_KEPT_MAX = 100_000  # of a client whose server does not confirm them
RECEIPT_RANGES_KEPT = 64  # of a subject, to tell a repeated message from a late one

# Command line
STDIN_LINE_BYTES_MAX = 16 * MB
SNAPSHOT_TIMEOUT_S = 10

# Cluster
PEER_HEARTBEAT_MS = 100
PEER_SUSPECT_MS = 600
TRACE_DIGESTS_MAX = 32  # entries named by content in a traced step: as many as most batches have
MISSED_AFTER_SUSPICIONS = 2  # from unreachable for one member, and not for others, to missed
MISSED_NEW_AFTER_SUSPICIONS = 5  # the same for a member that just started: it may still be dialing
MISSED_UNTIL_SUSPICIONS = 10  # how long it stays named after that, so that groups do not flap
UNFOLLOWED_AFTER_SUSPICIONS = 3  # from a group's standstill here to sending clients away
STANDARD_PATIENCE_MS = 300  # Standard mode: from a coordinator's end to its successor
STANDARD_ALONE_AFTER_S = 3  # Standard mode: how long a member that starts waits for the others
PEER_FRAME_BYTES_MAX = 1 * MB  # larger messages go in parts, each of which is a sign of life
PEER_MESSAGE_BYTES_MAX = 16 * GB  # the log and cache of one group have to fit
PEER_GREETING_BYTES_MAX = 16 * KB
PEER_OUTBOX_BYTES_MAX = 1024 * MB  # what may wait for a member that reads slowly
PEER_HANDSHAKE_TIMEOUT_S = 5
PEER_WRITE_TIMEOUT_S = 20
PEER_UNACKNOWLEDGED_S = 4  # for which bytes may stay unacknowledged by the other side's network
PEER_LINKS_MAX = 256  # of members that have proved themselves
PEER_UNPROVEN_MAX = 64  # callers whose address is not that of a listed member, together
PEER_UNPROVEN_PER_ADDRESS_MAX = 16  # a member calls once at a time; members may share an address
PEER_COMPLAINTS_MAX = 20  # lines about callers in the server log, in PEER_COMPLAINTS_S
PEER_COMPLAINTS_S = 60
PEER_COMPLAINTS_KEPT = 16  # reasons of one member that are not logged again
PEER_FORGOTTEN_S = 60  # after which a member that left, and is in no list, is not dialed any more
PEER_BACK_OFF_MAX_S = 2
VOTE_FILE_BYTES_MAX = 16 * MB
VOTE_FILE_BLOCK_BYTES = 4 * KB  # the size of the file is a multiple of this
VOTE_FILE_RETRY_S = 0.5  # between attempts to write to a disk that refuses
PUBLISH_TIMEOUT_S = 10
LOG_ENTRIES_KEPT = 512  # committed entries a group, for members that were away for a moment
PENDING_PER_GROUP_MAX = 20_000  # publications that wait for their commit, at one member
PENDING_BYTES_PER_GROUP_MAX = 64 * MB  # of these: 1,000 of one publisher (its maximum) at 64 KB
PENDING_BYTES_MAX = 512 * MB  # over all groups, while there is no quorum
FORWARD_PUBLICATIONS_MAX = 2000  # of one group, in one message
FORWARD_BYTES_MAX = 8 * MB  # in one message; further publications of the group wait for the next
CLUSTER_MEMBERS_MAX = 64
MEMBER_NAME_CHARS_MAX = 200  # of another member's NodeName, which is only shown to operators
SYNC_ITEMS_PER_MESSAGE = 16  # groups whose logs travel in one message
SYNC_BYTES_PER_MESSAGE = 8 * MB  # beyond it the log of the next group goes into another message

# Workers
WORKERS_MAX = 64
WORKER_HEARTBEAT_MS = 200  # the end of a worker is seen at once by its descriptor, and not by this
WORKER_SUSPECT_S = 60  # a server that stands still for less has its workers wait for it
WORKER_START_S = 60  # imports take a second; a large cache has to be copied
WORKER_END_S = 5  # from the end of its descriptors to SIGKILL
WORKER_SILENT_S = 30  # without a sign of life, after which a worker is ended and replaced
WORKER_BACK_OFF_MS = 100  # before the first restart; twice as much before each further one
WORKER_BACK_OFF_MAX_S = 30
WORKER_STEADY_S = 60  # a worker that ran for so long is restarted as if for the first time
WORKER_CONTROL_BYTES_MAX = 64 * MB  # one message to or from a worker; longer lists go in parts
WORKER_LINES_BYTES_MAX = 64 * MB  # of audit logs that a worker has not handed over; more are lost
WORKER_LINES_AT_ONCE_BYTES = 1 * MB  # in one message, which JSON may make several times as long
WORKER_ASK_TIMEOUT_S = 10
WORKER_MARGIN_S = 2  # for which a worker waits longer than its server gives a publication
WORKER_ANSWER_MARGIN_S = 3  # in which an answer still comes back to the one who asked
WORKER_QUESTIONS_MAX = 256  # of one worker that the others have not answered; more are refused
# Buckets of addresses whose connections are counted: with three hashes of 20 bits, one address in a
# million takes the count of others for its own while 10,000 addresses are connected.
WORKER_ADDRESS_BITS = 20
WORKER_ADDRESS_HASHES = 3
WORKER_SESSIONS_MAX = 1_000_000_000  # of one worker from its start to its end

# Kafka
KAFKA_PENDING_MAX = 100_000  # publications without a result; librdkafka's own bound is as high
KAFKA_PENDING_BYTES_MAX = 256 * MB  # of those that librdkafka keeps, which has a copy of each
KAFKA_KEYS_KNOWN_MAX = 200_000  # keys whose subject and partition are remembered, 400 bytes each
KAFKA_COMPLAINTS_MAX = 5  # records that are not as they should be, in the server log in a second
KAFKA_BATCH_RECORDS_MAX = 1_000  # of one step: a few milliseconds
KAFKA_CLIENTS_MAX = 16  # consumers or producers of one member, each with threads of its own
KAFKA_QUEUE_KB = 32 * KB  # of records that were fetched, and wait for the server
KAFKA_BRIDGE_RECORDS = 500  # that a bridge copies at a time; numbers of 1,000 are kept
SHIP_TRANSACTION_BYTES = 4 * MB  # of lines that `ship` writes to Kafka together: 2 Mbit/s suffice
SHIP_TRANSACTION_LINES = 10_000
KAFKA_BRIDGE_PATIENCE_S = 60  # without Kafka, before a bridge ends
KAFKA_BRIDGE_TRANSACTION_S = 20  # then brokers abort what a killed bridge left open: below patience
KAFKA_BRIDGE_RETRY_S = 1  # until records are published again that servers could not take just then
KAFKA_TOPICS_KNOWN_MAX = 10_000  # to which a bridge may write; others are asked about each time
KAFKA_BRIDGE_CLOSE_S = 5  # for the end of a consumer
KAFKA_POLL_S = 0.1  # after which the threads look whether the server ends
KAFKA_STATE_ROWS = 1_000  # that are read of a topic of the state at a time
KAFKA_STATE_SEGMENT_BYTES = 16 * MB  # of that topic, which is compacted up to the last segment
KAFKA_CALL_TIMEOUT_S = 10  # for an answer about topics and offsets
KAFKA_LOOK_TIMEOUT_S = 3  # after which Kafka counts as away, and publications are refused or held
KAFKA_TOPICS_SHOWN_MAX = 100  # one by one in monitors; each takes three time series
KAFKA_LOOK_S = 2  # how often topics are listed, and whether Kafka can be reached
KAFKA_DESCRIBE_S = 10  # how often topics are described that list as before: a request for all
KAFKA_GONE_S = (
    5  # a topic that is missing for so long was deleted: brokers that start know it by then
)
KAFKA_SUBJECTS_SHARE = 0.95  # of MaxSubjects for what is read; the rest is for what is published
KAFKA_ABSENT_MAX = 25_000  # subjects known by positions of clients alone, and 2.5 % of MaxSubjects
KAFKA_IDLE_AT_ONCE = 1_000  # subjects a second that are looked at, whether anything is left of them
KAFKA_CLOSE_TIMEOUT_S = 5  # for what still waits to be acknowledged when the server ends
KAFKA_LEADERS_KEPT = 1_000  # changes of the leader of a partition, by which lost records are known
KAFKA_PROPERTIES_BYTES_MAX = 1 * MB
KAFKA_DECODER_DEADLINE_S = 5  # for one record: a schema may have to be fetched first
KAFKA_DECODERS_STUCK_MAX = 16  # calls of one consumer that have not returned: a thread each

# Pipeline
DERIVE_GROUPS_MAX = 1_000_000  # groups of all rules together, whose states are kept in memory
DERIVE_SHARD_GROUPS_MAX = 250_000  # groups in the memory of one process of an executor
DERIVE_SHARDS_MAX = 1_000  # each is a task of every batch, which takes some tens of milliseconds
DERIVE_RANKED_MAX = 100_000  # subjects of one list in a period, which each step writes as a whole
DERIVE_REMEMBERED_S = 3600.0  # how long a group without messages still refuses those of old periods
DERIVE_LATENESS_S = 1.0  # how long a period stays open beyond its end
PUBLISHER_CONNECT_TIMEOUT_S = 10
