/*
 * What TLS costs a C program that does nothing else, beside the same bytes without TLS.
 *
 * tls_floor FILE [release]
 *                  makes 1,000 connections to itself over loopback with the certificate and key in
 *                  FILE (PEM), and prints the processor time of each connection's share, for one
 *                  message and for 20 that are joined: with send(), with io_uring, with SSL_write()
 *                  to the socket, in memory alone, and in memory and then with io_uring. A second
 *                  thread discards what arrives. "release" has OpenSSL give back its buffers
 *                  after each record, as Python does.
 *
 * cc -O2 -o build/tls_floor tests/peers/tls_floor.c -lssl -lcrypto -lpthread
 */
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 1000, MESSAGE_BYTES = 186, JOINED = 20, ROUNDS = 40, PAUSE_US = 3000, LOT = 250 };
enum { SEND, RING, SSL_WRITE, MEMORY, MEMORY_RING, WAYS };
static const char *names[] = {"send", "io_uring", "SSL_write", "memory alone", "memory, io_uring"};

static int near[CONNECTIONS];
static SSL *encrypted[CONNECTIONS];
static BIO *to_socket[CONNECTIONS], *to_memory[CONNECTIONS];
static char message[MESSAGE_BYTES * JOINED], made[LOT * 2 * sizeof message];
static size_t made_bytes;
static struct {
    int fd;
    unsigned *tail, mask, *done_head, *done_tail, done_mask;
    struct io_uring_sqe *requests;
    struct io_uring_cqe *done;
} ring;

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "tls_floor: %s\n", what);
    exit(1);
}

static void *discard(void *epoll) {
    struct epoll_event events[64];
    char bytes[65536];
    for (;;) {
        int count = epoll_wait(*(int *)epoll, events, 64, -1);
        for (int i = 0; i < count; i++) (void)!recv(events[i].data.fd, bytes, sizeof bytes, 0);
    }
    return NULL;
}

static double used_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

/* Connects one pair and shakes hands; both ends take turns, since neither may wait for the other. */
static void join(int i, int listener, int epoll, SSL_CTX *server, SSL_CTX *client) {
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    struct timeval turn = {.tv_usec = 1000};
    int yes = 1, ours = 0, theirs = 0, far = socket(AF_INET, SOCK_STREAM, 0);
    getsockname(listener, (struct sockaddr *)&address, &size);
    check(connect(far, (struct sockaddr *)&address, size) == 0, "connect");
    check((near[i] = accept(listener, NULL, NULL)) >= 0, "accept");
    setsockopt(near[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(near[i], SOL_SOCKET, SO_RCVTIMEO, &turn, sizeof turn);
    setsockopt(far, SOL_SOCKET, SO_RCVTIMEO, &turn, sizeof turn);
    SSL *peer = SSL_new(client);
    encrypted[i] = SSL_new(server);
    SSL_set_accept_state(encrypted[i]);
    SSL_set_connect_state(peer);
    SSL_set_fd(encrypted[i], near[i]);
    SSL_set_fd(peer, far);
    for (int turns = 0; ours != 1 || theirs != 1; turns++) {
        check(turns < 10000, "handshake");
        theirs = SSL_do_handshake(peer);
        ours = SSL_do_handshake(encrypted[i]);
    }
    struct epoll_event event = {.events = EPOLLIN, .data.fd = far};
    epoll_ctl(epoll, EPOLL_CTL_ADD, far, &event);
}

static int keep(BIO *bio, const char *bytes, int size) {
    (void)bio;
    memcpy(made + made_bytes, bytes, (size_t)size);
    made_bytes += (size_t)size;
    return size;
}

static long control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static void open_ring(void) {
    struct io_uring_params p = {0};
    check((ring.fd = (int)syscall(__NR_io_uring_setup, LOT, &p)) >= 0, "io_uring");
    size_t size = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    size_t other = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    int shared = MAP_SHARED | MAP_POPULATE, rights = PROT_READ | PROT_WRITE;
    char *base = mmap(NULL, size > other ? size : other, rights, shared, ring.fd, IORING_OFF_SQ_RING);
    ring.requests = mmap(NULL, p.sq_entries * sizeof *ring.requests, rights, shared, ring.fd,
                         IORING_OFF_SQES);
    check(base != MAP_FAILED && ring.requests != MAP_FAILED, "mmap");
    ring.tail = (unsigned *)(base + p.sq_off.tail);
    ring.mask = *(unsigned *)(base + p.sq_off.ring_mask);
    ring.done_head = (unsigned *)(base + p.cq_off.head);
    ring.done_tail = (unsigned *)(base + p.cq_off.tail);
    ring.done_mask = *(unsigned *)(base + p.cq_off.ring_mask);
    ring.done = (struct io_uring_cqe *)(base + p.cq_off.cqes);
    for (unsigned i = 0; i < p.sq_entries; i++) ((unsigned *)(base + p.sq_off.array))[i] = i;
}

static void add(int to, const char *bytes, size_t size) {
    unsigned tail = *ring.tail;
    ring.requests[tail & ring.mask] = (struct io_uring_sqe){
        .opcode = IORING_OP_SEND, .fd = to, .addr = (unsigned long)bytes, .len = (unsigned)size,
        .msg_flags = MSG_NOSIGNAL | MSG_DONTWAIT, .user_data = size};
    __atomic_store_n(ring.tail, tail + 1, __ATOMIC_RELEASE);
}

static void submit(void) {
    long given = syscall(__NR_io_uring_enter, ring.fd, LOT, LOT, IORING_ENTER_GETEVENTS, NULL, 0);
    unsigned head = *ring.done_head, tail = __atomic_load_n(ring.done_tail, __ATOMIC_ACQUIRE);
    check(given == LOT && tail - head == LOT, "io_uring_enter");
    for (; head != tail; head++) {
        struct io_uring_cqe *done = &ring.done[head & ring.done_mask];
        check(done->res == (int)done->user_data, "a send was refused");
    }
    __atomic_store_n(ring.done_head, head, __ATOMIC_RELEASE);
}

/* Sends to all connections in one of the ways. */
static void fan_out(int way, size_t size) {
    for (int i = 0; i < CONNECTIONS; i++) {
        if (i % LOT == 0) made_bytes = 0;
        size_t start = made_bytes;
        if (way == SEND) (void)!send(near[i], message, size, MSG_NOSIGNAL);
        if (way == RING) add(near[i], message, size);
        if (way >= SSL_WRITE) check(SSL_write(encrypted[i], message, (int)size) > 0, "SSL_write");
        if (way == MEMORY_RING) add(near[i], made + start, made_bytes - start);
        if ((way == RING || way == MEMORY_RING) && (i + 1) % LOT == 0) submit();
    }
}

int main(int count, char **arguments) {
    check(count == 2 || count == 3, "usage: tls_floor FILE [release]");
    SSL_CTX *server = SSL_CTX_new(TLS_server_method()), *client = SSL_CTX_new(TLS_client_method());
    check(SSL_CTX_use_certificate_file(server, arguments[1], SSL_FILETYPE_PEM) == 1, "certificate");
    check(SSL_CTX_use_PrivateKey_file(server, arguments[1], SSL_FILETYPE_PEM) == 1, "key");
    if (count == 3) SSL_CTX_set_mode(server, SSL_MODE_RELEASE_BUFFERS);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    check(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    check(listen(listener, 16) == 0, "listen");
    for (int i = 0; i < CONNECTIONS; i++) join(i, listener, epoll, server, client);
    BIO_METHOD *memory = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "memory");
    BIO_meth_set_write(memory, keep);
    BIO_meth_set_ctrl(memory, control);
    for (int i = 0; i < CONNECTIONS; i++) {
        to_socket[i] = SSL_get_wbio(encrypted[i]);
        to_memory[i] = BIO_new(memory);
        BIO_set_init(to_memory[i], 1);
        BIO_up_ref(to_socket[i]);
    }
    open_ring();
    pthread_t thread;
    check(pthread_create(&thread, NULL, discard, &epoll) == 0, "thread");
    for (size_t size = MESSAGE_BYTES; size <= sizeof message; size += sizeof message - MESSAGE_BYTES) {
        double used[WAYS] = {0};
        for (int turn = 0; turn < ROUNDS * WAYS; turn++) {
            int way = turn % WAYS;
            for (int i = 0; i < CONNECTIONS; i++) {
                BIO *to = way == SSL_WRITE ? to_socket[i] : to_memory[i];
                BIO_up_ref(to);
                SSL_set0_wbio(encrypted[i], to);
            }
            double begun = used_us();
            fan_out(way, size);
            used[way] += used_us() - begun;
            usleep(PAUSE_US);
        }
        for (int way = 0; way < WAYS; way++)
            printf("%4zu bytes, %-16s %5.2f us, %.2f of the rate of io_uring\n", size, names[way],
                   used[way] / ROUNDS / CONNECTIONS, used[RING] / used[way]);
    }
    return 0;
}
