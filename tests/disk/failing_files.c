/* Makes file calls of a process fail as a disk makes them fail: LD_PRELOAD this.

FAILING_FILES names a control file, which is read at each call. A line of it is

    CALL ERROR COUNT PATTERN

CALL is write, fsync (fdatasync too), rename, open (for writing) or truncate. The first COUNT such
calls on paths that fit PATTERN (fnmatch) fail with ERROR; counting starts anew when the control
file changes. A call that fails does nothing, and COUNT -1 never ends. With the ERROR `waits` it does not
fail: with COUNT -1 it returns once the control file says something else. A line

    suspended SECONDS

has the machine suspended for so long: the clocks that go on meanwhile are ahead by that. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINES_MAX 16
#define CONTROL_BYTES_MAX 4096
#define WAITS (-1)
#define WAIT_US 10000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char known[CONTROL_BYTES_MAX];
static int counted[LINES_MAX];

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static int number_of(const char *error) {
    if (!strcmp(error, "ENOSPC")) return ENOSPC;
    if (!strcmp(error, "EROFS")) return EROFS;
    if (!strcmp(error, "waits")) return WAITS;
    return EIO;
}

static size_t control(char *text) {
    const char *path = getenv("FAILING_FILES");
    if (!path) return 0;
    long file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    long size = syscall(SYS_read, file, text, CONTROL_BYTES_MAX - 1);
    syscall(SYS_close, file);
    return size > 0 ? (size_t)size : 0;
}

/* The error that the control file has for this call now, 0 if it has none. */
static int error_of(const char *call, const char *path) {
    char text[CONTROL_BYTES_MAX];
    size_t size = control(text);
    text[size] = 0;
    if (!size) return 0;
    int found = 0;
    pthread_mutex_lock(&lock);
    if (strcmp(text, known)) {
        strcpy(known, text);
        memset(counted, 0, sizeof counted);
    }
    char *rest = text;
    for (int at = 0; at < LINES_MAX && !found; at++) {
        char *line = strsep(&rest, "\n");
        char wanted[16], error[16], pattern[1024];
        int count;
        if (!line) break;
        if (sscanf(line, "%15s %15s %d %1023s", wanted, error, &count, pattern) != 4) continue;
        if (strcmp(wanted, call) || fnmatch(pattern, path, 0)) continue;
        if (count >= 0 && counted[at] >= count) continue;
        counted[at]++;
        found = number_of(error);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* The error of this call, 0 where it is to succeed. */
static int failure(const char *call, const char *path) {
    int error;
    while ((error = error_of(call, path)) == WAITS) usleep(WAIT_US);
    return error;
}

static int failure_of_file(const char *call, int file) {
    char link[64], path[1024];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    long size = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (size <= 0 || path[0] != '/') return 0;
    path[size] = 0;
    return failure(call, path);
}

#define FAIL_IF(cause)        \
    do {                      \
        int error = (cause);  \
        if (error) {          \
            errno = error;    \
            return -1;        \
        }                     \
    } while (0)

ssize_t write(int file, const void *data, size_t size) {
    FAIL_IF(failure_of_file("write", file));
    return ((ssize_t(*)(int, const void *, size_t))real("write"))(file, data, size);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    FAIL_IF(failure_of_file("write", file));
    return ((ssize_t(*)(int, const void *, size_t, off64_t))real("pwrite64"))(file, data, size, at);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    FAIL_IF(failure_of_file("write", file));
    return ((ssize_t(*)(int, const void *, size_t, off_t))real("pwrite"))(file, data, size, at);
}

int fsync(int file) {
    FAIL_IF(failure_of_file("fsync", file));
    return ((int (*)(int))real("fsync"))(file);
}

int fdatasync(int file) {
    FAIL_IF(failure_of_file("fsync", file));
    return ((int (*)(int))real("fdatasync"))(file);
}

int ftruncate64(int file, off64_t size) {
    FAIL_IF(failure_of_file("truncate", file));
    return ((int (*)(int, off64_t))real("ftruncate64"))(file, size);
}

int ftruncate(int file, off_t size) {
    FAIL_IF(failure_of_file("truncate", file));
    return ((int (*)(int, off_t))real("ftruncate"))(file, size);
}

int rename(const char *from, const char *to) {
    FAIL_IF(failure("rename", from));
    return ((int (*)(const char *, const char *))real("rename"))(from, to);
}

static int opened(const char *name, const char *path, int flags, mode_t mode) {
    if (flags & (O_WRONLY | O_RDWR)) FAIL_IF(failure("open", path));
    return ((int (*)(const char *, int, ...))real(name))(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return opened("open", path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return opened("open64", path, flags, mode);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = (int)syscall(SYS_clock_gettime, clock, now);
    if (!done && (clock == CLOCK_BOOTTIME || clock == CLOCK_REALTIME)) {
        char text[CONTROL_BYTES_MAX];
        long seconds;
        text[control(text)] = 0;
        if (sscanf(text, "suspended %ld", &seconds) == 1) now->tv_sec += seconds;
    }
    return done;
}
