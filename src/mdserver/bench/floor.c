/*
 * The floor of a fan-out: one send() for each subscriber and message, nothing else.
 *
 * floor N   listens on a free port of 127.0.0.1, writes the port and a newline to stdout, accepts
 *           N connections, writes another newline, then reads batches from stdin until it ends.
 *           A batch is a count, then for each message its length and its bytes; both numbers are
 *           32 bits in the byte order of the machine. The messages of a batch are read before
 *           the first is sent, as a server has them that reads a burst with one system call.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGES_MAX = 1024, BATCH_BYTES_MAX = 4 * 1024 * 1024 };

static char batch[BATCH_BYTES_MAX];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* Reads exactly `size` bytes of stdin; ends the program where stdin ends. */
static void take(void *into, size_t size) {
    char *next = into;
    while (size > 0) {
        ssize_t got = read(STDIN_FILENO, next, size);
        if (got < 0) fail("read");
        if (got == 0) exit(0);
        next += got;
        size -= (size_t)got;
    }
}

static void send_whole(int to, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t sent = send(to, bytes, size, MSG_NOSIGNAL);
        if (sent < 0) fail("send");
        bytes += sent;
        size -= (size_t)sent;
    }
}

static int listening(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0) fail("socket");
    if (bind(listener, (struct sockaddr *)&address, size) < 0) fail("bind");
    if (listen(listener, 4096) < 0) fail("listen");
    if (getsockname(listener, (struct sockaddr *)&address, &size) < 0) fail("getsockname");
    printf("%u\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(int count, char **arguments) {
    static uint32_t lengths[MESSAGES_MAX];
    long subscribers = count == 2 ? atol(arguments[1]) : 0;
    if (subscribers < 1 || subscribers > 1000000) {
        fprintf(stderr, "usage: floor SUBSCRIBERS\n");
        return 2;
    }
    int *to = calloc((size_t)subscribers, sizeof *to);
    if (to == NULL) fail("calloc");
    int listener = listening();
    for (long i = 0; i < subscribers; i++) {
        int yes = 1;
        if ((to[i] = accept(listener, NULL, NULL)) < 0) fail("accept");
        setsockopt(to[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    printf("\n");
    fflush(stdout);
    for (;;) {
        uint32_t messages;
        size_t used = 0;
        take(&messages, sizeof messages);
        if (messages > MESSAGES_MAX) return 2;
        for (uint32_t m = 0; m < messages; m++) {
            take(&lengths[m], sizeof lengths[m]);
            if (lengths[m] > sizeof batch - used) return 2;
            take(batch + used, lengths[m]);
            used += lengths[m];
        }
        const char *message = batch;
        for (uint32_t m = 0; m < messages; m++) {
            for (long i = 0; i < subscribers; i++) send_whole(to[i], message, lengths[m]);
            message += lengths[m];
        }
    }
}
