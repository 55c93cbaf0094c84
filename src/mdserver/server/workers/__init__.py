"""Worker processes: several processors serve the clients of one server (`Workers = N`).

    clients ==TCP==> worker 1 --.
    clients ==TCP==> worker 2 ---+-- peer protocol over socket pairs --> server: log, monitor, disk
    clients ==TCP==> worker N --'

The server, alone or a member of a cluster, starts the workers, and serves no clients itself. To its
workers it coordinates every subject group (`mdserver.cluster.workers`): a worker holds a copy of
the cache, forwards the publications of its clients to the server, and delivers what is committed
there. Numbering, repeats, acknowledgements and recovery are therefore those of a cluster
(docs/cluster.md): a client that loses its worker goes on at another one, from its position.

*Trust.* A worker gets descriptors by inheritance, one end of each of three anonymous channels: a
socket pair for the peer protocol, one for control messages, and a pipe for log lines. Nobody else
can open them, so no side has to prove who it is. The command line of a worker shows one descriptor
number; configuration and secrets go through the control channel (`control.BeginWorker`).

*Listening.* The server binds every address before it gives up rights: one socket for each worker
(SO_REUSEPORT, the kernel spreads connections), or the one socket that systemd handed over for all
of them. It keeps them open, so connections that wait for a worker that died are served by the next.

*Supervision.* A worker that ends is logged (`worker ended`) and started again, after a pause that
doubles while it keeps ending. Until it has been replaced, its listening sockets take connections
only if the pause is short. A worker ends by itself when its control channel ends, so none is left
over when the server is killed. If the server drains, its workers drain first.

*Limits.* `MaxConnections` and `MaxConnectionsPerAddress` hold for all workers together: each counts
in shared memory (`shared_counts`). Statistics are sent to the server every second and summed there
(`figures`); the server asks all workers for its pages of sessions.
"""
