/*
 * What TLS costs a C program that does nothing else: SSL_write() beside send() of the same bytes.
 *
 * tls_floor FILE   makes 1,000 connections to itself over loopback with the certificate and key in
 *                  FILE (PEM), and prints the processor time of each call, for one message and for
 *                  20 that are joined. A second thread discards what arrives. Then the records are
 *                  made without sending them, in memory.
 *
 * cc -O2 -o build/tls_floor tests/peers/tls_floor.c -lssl -lcrypto -lpthread
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 1000, MESSAGE_BYTES = 186, JOINED = 20, ROUNDS = 20, PAUSE_US = 4000 };

static int near[CONNECTIONS];
static SSL *encrypted[CONNECTIONS];
static char message[MESSAGE_BYTES * JOINED], made[4 * sizeof message];

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

int main(int count, char **arguments) {
    check(count == 2, "usage: tls_floor FILE");
    SSL_CTX *server = SSL_CTX_new(TLS_server_method()), *client = SSL_CTX_new(TLS_client_method());
    check(SSL_CTX_use_certificate_file(server, arguments[1], SSL_FILETYPE_PEM) == 1, "certificate");
    check(SSL_CTX_use_PrivateKey_file(server, arguments[1], SSL_FILETYPE_PEM) == 1, "key");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    check(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    check(listen(listener, 16) == 0, "listen");
    for (int i = 0; i < CONNECTIONS; i++) join(i, listener, epoll, server, client);
    pthread_t thread;
    check(pthread_create(&thread, NULL, discard, &epoll) == 0, "thread");
    double calls = (double)ROUNDS * CONNECTIONS;
    for (int size = MESSAGE_BYTES; size <= (int)sizeof message; size += sizeof message - MESSAGE_BYTES) {
        double plain = 0, tls = 0, memory = 0, begun;
        for (int round = 0; round < ROUNDS; round++) {
            begun = used_us();
            for (int i = 0; i < CONNECTIONS; i++) (void)!send(near[i], message, size, MSG_NOSIGNAL);
            plain += used_us() - begun;
            usleep(PAUSE_US);
            begun = used_us();
            for (int i = 0; i < CONNECTIONS; i++) SSL_write(encrypted[i], message, size);
            tls += used_us() - begun;
            usleep(PAUSE_US);
        }
        for (int i = 0; i < CONNECTIONS; i++) SSL_set0_wbio(encrypted[i], BIO_new(BIO_s_mem()));
        for (int round = 0; round < ROUNDS; round++) {
            begun = used_us();
            for (int i = 0; i < CONNECTIONS; i++) {
                SSL_write(encrypted[i], message, size);
                BIO_read(SSL_get_wbio(encrypted[i]), made, sizeof made);
            }
            memory += used_us() - begun;
        }
        for (int i = 0; i < CONNECTIONS; i++) SSL_set_fd(encrypted[i], near[i]);
        printf("%d bytes: send %.2f us, SSL_write %.2f us (%.2f of the rate), record alone %.2f us\n",
               size, plain / calls, tls / calls, plain / tls, memory / calls);
    }
    return 0;
}
