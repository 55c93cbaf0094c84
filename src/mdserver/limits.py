"""Every number that bounds something, in one place.

What an operator can change has its default here and its parameter in `mdserver.config`; the others
are fixed by the protocol.
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

# Subjects
SUBJECT_BYTES_MAX = 1024
SUBJECT_SEGMENTS_MAX = 32  # what `SubjectMaxSegments` may be
SUBJECT_SEGMENTS = 16
SUBJECTS_PER_COMMAND_MAX = 10_000
SUBJECT_GROUPS = 128
SUBJECT_GROUPS_MAX = 4096  # what `ClusterSubjectGroups` may be

# Messages
MESSAGE_BYTES_MAX = 64 * KB
FIELDS_MAX = 256
WEBSOCKET_SLACK_BYTES = 64 * KB  # on top of four times MaxMessageSize, for the JSON around it
CLOSURE_BYTES_MAX = 256
PUBLISHER_BYTES_MAX = 128
TOKEN_BYTES_MAX = 16 * KB
RECEIPTS_PER_COMMAND_MAX = 1000
# Receipts of one session and of one address in RECEIPTS_S: about 2 MB and 20 MB of the journal.
RECEIPTS_PER_SESSION_MAX = 5_000
RECEIPTS_PER_ADDRESS_MAX = 50_000
RECEIPTS_S = 60
RECEIPTS_ADDRESSES_MAX = 20_000  # whose receipts are counted, those heard last
# Bytes of which checksums are made to confirm receipts: of a session in RECEIPTS_S, and in one step
RECEIPT_CONFIRM_BYTES_MAX = 16 * MB
RECEIPT_CONFIRM_BYTES_AT_ONCE = 2 * MB
RECEIPT_ENTRY_BYTES = KB  # what a message counts for besides its content: 2,000 take some 2 ms
RECEIPT_VISIT_BYTES = 128  # what a look at a pattern or a message counts for
SUBSCRIPTIONS_ENDED_MAX = 64  # of a session, about which receipts may follow still
MALFORMED_MAX = 100  # commands of a session that are answered by an error of their own
HINTS_MAX = 3  # of those errors name the command that was perhaps meant: looking for it takes time

# Cache
CACHED_MESSAGES_PER_SUBJECT = 1000
CACHED_MESSAGES_PER_SUBJECT_MAX = 1_000_000
CACHE_EXPIRE_S = 180
SUBJECTS_MAX = 1_000_000
CACHE_BYTES_MAX = 1024 * MB
ENTRY_OVERHEAD_BYTES = 400  # what a cached message takes besides its content and fields
SNAPSHOT_FIELDS_MAX = FIELDS_MAX  # so that one publication can still give all of them
SNAPSHOT_FIELDS_MESSAGES_MAX = 3  # times MaxMessageSize for its fields, and once for its content
EXPIRED_AT_ONCE = 5_000  # messages and snapshots that leave the cache by age in one step, some 5 ms
EXPIRE_PAUSE_MS = 1  # between two such steps
RESERVATION_S = 60  # how long a subject is kept whose first publication has no result yet
VALID_SUBJECTS_KEPT = 65_536  # subjects that are not checked again
EMPTY_PATTERNS_KEPT = 4096  # branches of the tree of patterns in which nothing is any more
AUDIENCES_MAX = 100_000  # subjects whose list of sessions is kept ready

# Sessions
SUBSCRIPTIONS_PER_SESSION_MAX = 100_000
PINGS_WAITING_MAX = 16  # of a session, for what its subscriptions bring first
PATTERNS_PER_SESSION_MAX = 1_000
CONNECTIONS_MAX = 100_000
CONNECTIONS_EXPECTED = 10_000  # of the default above: fewer, for a lack of files, are warned of
CONNECTIONS_PER_ADDRESS_MAX = 1000
OUTBOX_BYTES_MAX = 1 * MB
WAITING_MESSAGE_OVERHEAD_BYTES = 700  # what a waiting message takes besides content and frame
WAITING_FRAME_OVERHEAD_BYTES = 48
CATCH_UP_BYTES_MAX = 64 * MB  # history and recovery that wait for one client
RECEIVE_BYTES_MAX = 1 * MB
FIRST_BYTES_MAX = 64 * KB  # of a message while tokens decide and the client has given none
UNFINISHED_BYTES_MAX = 64 * MB  # messages and requests that are not complete, of all connections
UNFINISHED_FREE_BYTES = 16 * KB  # of each connection, not counted: a request's head, a `connect`
ANSWERS_BYTES_MAX = 256 * MB  # histories that are being sent over HTTP, of all connections
ANSWER_BYTES_MAX = 64 * MB  # of one of them
ANSWER_PART_BYTES = 64 * KB  # that are encoded and sent at a time
HANDSHAKE_TIMEOUT_S = 10
KEEPALIVE_INTERVAL_S = 25
TURN_MS = 2  # of a reader, before the others have a turn
FRAMES_AT_ONCE = 256  # of WebSocket, some 0.7 ms of reading, before a look at the clock
COMMANDS_PER_STEP = 64  # at first: so many that deliver much take some milliseconds
COMMANDS_PER_STEP_MAX = 256  # once steps prove cheap; more would save little
SUBJECTS_PER_STEP = 250  # of a command with many, which takes several steps
RATED_ADDRESSES_KEPT = 10_000  # with their rates, before those that are idle are forgotten
LINGER_MS = 500  # after the last byte, so that it is read and not reset away
REFUSED_LINGERING_MAX = 64  # connections beyond the limit; half of the descriptors kept back
REFUSED_BYTES_MAX = 64 * KB  # what is read of a request that is refused for such a limit
CLOSE_TIMEOUT_S = 5  # for the other side's half of a closing hand-shake
WRITE_TIMEOUT_S = 30  # without a byte taken by a client that has something to read
MONITOR_CONNECTIONS_MAX = 1000
SESSIONS_SHOWN_MAX = 10_000
SUBSCRIPTIONS_SHOWN_MAX = 1000  # of a session, to operators
SUBJECTS_SHOWN_MAX = 1000
LOG_LEVEL_MINUTES_MAX = 1440  # for which operators may have more logged
DRAIN_TIMEOUT_S = 30
DRAIN_SESSIONS_PER_S = 2000  # how fast sessions are sent to the other members
DRAIN_SPREAD_MS_MIN = 200
DRAIN_HAND_OVER_S = 5  # how long a member that ends waits for others to take its groups
OUT_OF_SERVICE_LOGGED_S = 10  # a change of coordinators takes 2 to 3 s, all of a start rarely more
DRAIN_GRACE_MS = 1000  # beyond the spread, for those who were told to come last
CONFLATION_STEP_MS = 100
CONFLATION_MS_MAX = 24 * 3600 * 1000
SSE_SUBJECTS_MAX = 64
PRESENCE_CALLS_PENDING_MAX = 100_000
PRESENCE_DEADLINE_S = 10
SSE_POSITIONS_MAX = 64  # in the id of an event, some 40 bytes each
SSE_POSITIONS_BYTES_MAX = 4 * KB  # of their names: the id has to fit the head of a request
SSE_PLACES_MAX = 512  # subject groups of which an id names a place, 7 bytes each
KEEPALIVE_MS_MIN = 1000
VERDICTS_PENDING_MAX = 100_000  # that wait for a custom entitlement class, 300 bytes each
VERDICTS_AT_ONCE = 1_000  # questions that such a class is asked at the same time
VERDICTS_PER_SESSION_AT_ONCE = 16  # of these, about one session: others always get their turn
VERDICT_WAIT_S = 30  # how long a question waits for its turn before it is answered with "busy"
RECHECKS_AT_ONCE = 16  # subscriptions of a session that are asked about again after a new token
VERDICT_DEADLINE_S = 5
HELD_COMMANDS_MAX = 10_000  # commands of one session that wait for an entitlement verdict
WORK_AT_ONCE = 5000  # subjects and patterns that a step looks at for new subscriptions, some 3 ms
SUBJECTS_AT_ONCE = 1000  # of one command, or of a session that ends, that one step deals with
CONFLATED_AT_ONCE = 2000  # messages whose windows end in one step
BROUGHT_AT_ONCE = 1000  # outputs of a step beyond which new subscriptions wait for the next one
STEP_PAUSE_MS = 1  # between two such steps
AHEAD_WAIT_S = 10  # how long a subscriber waits that is ahead of this member
TOKEN_RENEW_BEFORE_S = 60

# Numbered publications (docs/protocol.md, "Exactly once")
PUBLISHER_NUMBERS_KEPT = 1000
PUBLISHER_IDENTITY_CHARS_MAX = 2 * PUBLISHER_BYTES_MAX + 2  # user and name, and two signs
PUBLISHER_KEY_CHARS_MAX = 128  # more than a key has, so that a longer one can come
PUBLISHER_RANDOM_BYTES = 12  # so many that nobody draws what another one has
PUBLISHER_SECRET_BYTES = 32
PUBLISHER_IDLE_S = 3600
PUBLICATIONS_PER_REQUEST_MAX = 1000  # in one body of JSON
IDEMPOTENCY_KEY_CHARS_MIN = 16  # shorter ones can be guessed
IDEMPOTENCY_KEY_CHARS_MAX = 256
PUBLISHERS_MAX = 100_000  # of all groups at one member, 400 bytes each and 60 a number that is kept
PUBLISHERS_FORGOTTEN_AT_ONCE = 1000  # of a group in a second, so that a look takes milliseconds

# HTTP heads and bodies that come before any session exists
PROXY_HEADER_BYTES_MAX = 4 * KB  # after its first 16: addresses, and what some proxies add
HTTP_HEAD_BYTES_MAX = 16 * KB
HTTP_BODY_BYTES_MAX = 1 * MB
HTTP_CHUNKS_MAX = 1000  # of one body; each costs far more than its bytes

# Configuration files
CONFIG_BYTES_MAX = 1 * MB

# Logs
LOG_QUEUE_BYTES_MAX = 8 * MB
STATS_LOG_INTERVAL_S = 60
STATISTICS_SAMPLE_MS = 1000  # of the windows, whose smallest bucket is a second
LOOP_DELAY_SAMPLE_MS = 100  # ten sleeps a second cost some 0.02 % of a core
STATISTICS_FILE_BYTES_MAX = 2 * MB  # seven indicators in four rings take 0.6 MB
STATISTICS_SAVE_S = 60  # so much is lost of the windows when a server is killed
LOG_CLOSE_TIMEOUT_S = 5
LOG_FILE_BYTES_MAX = 20 * MB
LOG_FILES_MAX = 10
AUDIT_TEXT_CHARS_MAX = 512  # of one column of the audit logs
AUDIT_LINES_MAX = 200  # of one session in the access or presence log, in
AUDIT_LINES_S = 10
AUDIT_MESSAGE_LINES_MAX = 20_000  # of one session in the message log: 2,000 publications a second
AUDIT_ADDRESS_LINES_MAX = 5_000  # of one address: all its connections begin anew, with five lines
AUDIT_ADDRESS_MESSAGE_LINES_MAX = 40_000  # of one address in the message log
AUDIT_SESSIONS_MAX = 20_000  # whose lines are counted, those heard last
LOG_RENAME_RETRY_S = 60  # after a log file could not be renamed; until then it grows
LOG_FIRST_LINE_BYTES = 4096  # in which the time of a line stands

# Journal
JOURNAL_SEGMENT_BYTES_MAX = 64 * MB
JOURNAL_SEGMENT_S = 5
JOURNAL_BYTES_MAX = 10 * GB  # of the sealed segments of one stream
JOURNAL_AGE_DAYS_MAX = 7
JOURNAL_SYNC_S = 1  # `JournalFsync = interval`
JOURNAL_QUEUE_BYTES_MAX = 64 * MB  # beyond it lines are dropped, and counted
JOURNAL_FULL_QUEUE_BYTES = 32 * MB  # beyond it publications are refused
JOURNAL_RETRY_S = 0.5  # between attempts to write to a disk that refuses
JOURNAL_CLEAN_S = 5  # between looks for segments that may be deleted
JOURNAL_CLOSE_TIMEOUT_S = 10
JOURNAL_STATS_S = 1
JOURNAL_SETTLE_S = 5  # for the first write, before a single server listens
JOURNAL_PORTION_BYTES = 1 * MB  # of a record that is larger than that
JOURNAL_AHEAD_BYTES = 8 * MB  # of the stream `log`, that the thread was given and did not write yet
JOURNAL_HOLD_BYTES = 8 * MB  # of entries on their way to the disk, before a coordinator adds more
JOURNAL_BEHIND_BYTES = 64 * MB  # of entries on their way to the disk, before a seed takes no more
JOURNAL_LOG_BYTES_MIN = 64 * MB  # of the stream `log`, before it is written anew
JOURNAL_LOG_GROWTH = 2  # how many times as large as it was when it was written anew
JOURNAL_BEGUN_BYTES_MAX = 64 * KB  # of the line that says who writes, seeds and all
JOURNAL_CLOCK_SLACK_S = 60  # by which the times in rows and those of files may differ

# TLS 1.2 with forward secrecy and authenticated encryption only (RFC 9325, section 4.2); the suites
# of TLS 1.3 are all of that kind.
TLS_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"

STRICT_TRANSPORT_SECURITY_S = 365 * 86400  # a year, as browsers' lists ask for

# Files with keys and secrets
PASSWORD_CHARS_MIN = 16  # whoever hears a proof can try passwords as fast as machines are
KEY_FILE_BYTES_MAX = 1 * MB

# Clients
CLIENT_PUBLICATIONS_MAX = PUBLISHER_NUMBERS_KEPT  # without a result, whatever their group
CLIENT_POSITIONS_MAX = SUBJECTS_MAX
CLIENT_COMMAND_BYTES_MAX = 48 * KB  # a server takes at least WEBSOCKET_SLACK_BYTES
CLIENT_JOIN_BYTES = 16 * KB  # small commands in one message: a bad link gets some of it through
CLIENT_OPEN_TIMEOUT_S = 10
CLIENT_CONNECT_TIMEOUT_S = (
    30  # for the first connection: every server is tried three times and more
)
CLIENT_SILENCE_S = 5  # of a server, until a client asks for a word
CLIENT_PONG_S = 5  # until the client goes elsewhere when none comes
CLIENT_LATE_S = 1  # so late a timer means that the client itself stood still
CLIENT_PUBLISH_RETRY_S = 0.5
CLIENT_MOVE_JITTER_S = 0.5
CLIENT_STABLE_S = 10  # a connection that lasted so long was a good one
RECONNECT_RATE_WINDOW_S = 180
CLIENT_CLOSE_TIMEOUT_S = 2
CLIENT_FAREWELL_S = 0.1  # for a close frame when everything is cancelled
CLIENT_DRAIN_TIMEOUT_S = 5  # for results still missing when a client leaves
CLIENT_PAYLOAD_BYTES_MAX = 16 * MB
CLIENT_INFLATED_BYTES_MAX = 8 * MB
CLIENT_NOTICES_MAX = 1000
CLIENT_BUFFER_MESSAGES = 10_000  # of a subscription; beyond, it is held and recovered
CLIENT_REQUEST_TIMEOUT_S = 30
CLIENT_RECEIPT_S = 60  # how much time one receipt is about at most
RECEIPTS_KEPT_MAX = 100_000  # of a client whose server does not take them
RECEIPT_RANGES_KEPT = 64  # of a subject, to tell what comes twice from what comes late

# Command line
STDIN_LINE_BYTES_MAX = 16 * MB
SNAPSHOT_TIMEOUT_S = 10

# Cluster
PEER_HEARTBEAT_MS = 100
PEER_SUSPECT_MS = 600
MISSED_AFTER_SUSPICIONS = 2  # from out of sight of one member, and not of others, to missed
MISSED_NEW_AFTER_SUSPICIONS = 5  # the same for a member that just started: it may dial still
MISSED_UNTIL_SUSPICIONS = 10  # how long it is named after that: no moves back and forth
UNFOLLOWED_AFTER_SUSPICIONS = 3  # from a group's standstill here to clients being sent away
STANDARD_PATIENCE_MS = 300  # without votes: from a coordinator's end to its successor
STANDARD_ALONE_AFTER_S = 3  # without votes: how long a member that starts waits for the others
PEER_FRAME_BYTES_MAX = 1 * MB  # larger messages go in parts, each of which shows that it goes on
PEER_MESSAGE_BYTES_MAX = 16 * GB  # the log and cache of one group have to fit
PEER_GREETING_BYTES_MAX = 16 * KB
PEER_OUTBOX_BYTES_MAX = 1024 * MB  # what may wait for a member that reads slowly
PEER_HANDSHAKE_TIMEOUT_S = 5
PEER_WRITE_TIMEOUT_S = 20
PEER_LINKS_MAX = 256  # of members that have proved themselves
PEER_UNPROVEN_MAX = 64  # callers that are no listed members' addresses, together
PEER_UNPROVEN_PER_ADDRESS_MAX = 16  # a member calls once at a time; many share a test machine's
PEER_COMPLAINTS_MAX = 20  # lines about callers in the server log, in
PEER_COMPLAINTS_S = 60
PEER_COMPLAINTS_KEPT = 16  # reasons of one member that are not said again
PEER_FORGOTTEN_S = 60  # after which a member that is in no list, and went, is dialed no more
PEER_BACK_OFF_MAX_S = 2
VOTE_FILE_BYTES_MAX = 16 * MB
VOTE_FILE_BLOCK_BYTES = 4 * KB  # its size is a multiple of this
VOTE_FILE_RETRY_S = 0.5  # between attempts to write to a disk that refuses
PUBLISH_TIMEOUT_S = 10
LOG_ENTRIES_KEPT = 512  # committed entries a group, for members that were away for a moment
PENDING_PER_GROUP_MAX = 20_000  # publications that wait for their commit, at one member
PENDING_BYTES_PER_GROUP_MAX = 64 * MB  # of them: 1,000 of one publisher (its most) at 64 KB
PENDING_BYTES_MAX = 512 * MB  # of all groups' together, for as long as there is no quorum
FORWARD_PUBLICATIONS_MAX = 2000  # of one group, at a time
FORWARD_BYTES_MAX = 8 * MB  # beyond it, the group's next publication waits for the next time
CLUSTER_MEMBERS_MAX = 64
MEMBER_NAME_CHARS_MAX = 200  # of another member's NodeName, which goes to operators only
SYNC_ITEMS_PER_MESSAGE = 16  # groups whose logs travel in one message
SYNC_BYTES_PER_MESSAGE = 8 * MB  # beyond it, the next group's log goes into another message

# Pipeline
DERIVE_GROUPS_MAX = 1_000_000  # groups of all rules together, whose states are kept in memory
DERIVE_LATENESS_S = 1.0  # how long a period stays open beyond its end
PUBLISHER_CONNECT_TIMEOUT_S = 10
