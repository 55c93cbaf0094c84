/* Sends bytes to many sockets in one call, for the flusher (docs/design.md, "Fan-out").
 *
 * What one call does, in three parts:
 *
 *     collect   with the GIL: the descriptor and the bytes of each socket
 *     send      without the GIL: one non-blocking send(2) each, by a loop or by io_uring
 *     report    with the GIL: who took all, who took a part, whose connection is broken
 *
 * A descriptor is asked for in the call in which it is used, and the caller's lists keep the sockets
 * and the bytes alive until it ends. So a descriptor could be that of another connection only if
 * another thread closed a socket meanwhile; those of clients belong to the thread that calls.
 *
 * With io_uring every request is finished when the call returns. MSG_DONTWAIT makes the kernel
 * answer EAGAIN rather than wait for the socket, so no request outlives the bytes that it sends.
 * The ring is used for batches alone: what the kernel cannot take in goes through the loop.
 */

#define Py_LIMITED_API 0x030B0000
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__linux__) && defined(__has_include)
#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif
#endif
/* Linux 5.18: a request that fails does not keep those behind it from being taken in. */
#if defined(IORING_SETUP_SUBMIT_ALL) && defined(__NR_io_uring_setup)
#define HAS_RING 1
#else
#define HAS_RING 0
#endif

#define FLAGS (MSG_NOSIGNAL | MSG_DONTWAIT)
#define PENDING INT_MIN

/* One socket: what to send there, and what came of it (bytes that were sent, or -errno). */
struct target {
    int fd;
    int result;
    const char *bytes;
    size_t size;
};

typedef struct {
    PyObject *fileno; /* the name of the method */
    PyObject *ring_type;
} State;

static State *
state_of(PyObject *module)
{
    return (State *)PyModule_GetState(module);
}

/* Send what is pending with a loop. Called without the GIL. */
static void
send_each(struct target *targets, Py_ssize_t count)
{
    for (Py_ssize_t at = 0; at < count; at++) {
        struct target *target = &targets[at];
        if (target->result != PENDING)
            continue;
        ssize_t sent;
        do
            sent = send(target->fd, target->bytes, target->size, FLAGS);
        while (sent < 0 && errno == EINTR);
        target->result = sent < 0 ? -errno : (int)sent;
    }
}

/* Fill in the targets from the caller's lists. Returns NULL with an exception set. */
static struct target *
collect(State *state, PyObject *wires, PyObject *socks, Py_ssize_t *count)
{
    if (!PyList_Check(wires) || !PyList_Check(socks)) {
        PyErr_SetString(PyExc_TypeError, "wires and sockets are lists");
        return NULL;
    }
    *count = PyList_Size(wires);
    if (PyList_Size(socks) != *count) {
        PyErr_SetString(PyExc_ValueError, "there is one wire for each socket");
        return NULL;
    }
    struct target *targets = PyMem_Malloc((size_t)(*count + 1) * sizeof(struct target));
    if (targets == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t at = 0; at < *count; at++) {
        struct target *target = &targets[at];
        char *bytes;
        Py_ssize_t size;
        /* `fileno` of a plain socket runs no Python code, so the lists stay as they are; a longer
         * list would be no danger, a shorter one raises IndexError. */
        PyObject *wire = PyList_GetItem(wires, at);
        PyObject *sock = PyList_GetItem(socks, at);
        if (wire == NULL || sock == NULL || PyBytes_AsStringAndSize(wire, &bytes, &size) < 0)
            goto failed;
        if (size == 0 || size > INT_MAX) {
            PyErr_SetString(PyExc_ValueError, "a wire has 1 to 2147483647 bytes");
            goto failed;
        }
        PyObject *number = PyObject_CallMethodObjArgs(sock, state->fileno, NULL);
        if (number == NULL)
            goto failed;
        long fd = PyLong_AsLong(number);
        Py_DECREF(number);
        if (fd == -1 && PyErr_Occurred())
            goto failed;
        target->fd = (int)fd;
        target->bytes = bytes;
        target->size = (size_t)size;
        target->result = fd < 0 || fd > INT_MAX ? -EBADF : PENDING; /* -1: closed already */
    }
    return targets;
failed:
    PyMem_Free(targets);
    return NULL;
}

static int
append_pair(PyObject *list, Py_ssize_t at, int value)
{
    PyObject *pair = Py_BuildValue("(ni)", at, value);
    if (pair == NULL)
        return -1;
    int failed = PyList_Append(list, pair);
    Py_DECREF(pair);
    return failed;
}

/* Return the lists of those that took all, of those that took a part, and of broken ones. */
static PyObject *
report(const struct target *targets, Py_ssize_t count)
{
    PyObject *done = PyList_New(0), *partial = PyList_New(0), *broken = PyList_New(0);
    if (done == NULL || partial == NULL || broken == NULL)
        goto failed;
    for (Py_ssize_t at = 0; at < count; at++) {
        int result = targets[at].result;
        int error = 0;
        if (result >= 0 && (size_t)result == targets[at].size) {
            PyObject *number = PyLong_FromSsize_t(at);
            error = number == NULL ? -1 : PyList_Append(done, number);
            Py_XDECREF(number);
        }
        else if (result >= 0)
            error = append_pair(partial, at, result);
        else if (result == -EAGAIN || result == -EWOULDBLOCK || result == -EINTR)
            error = append_pair(partial, at, 0);
        else
            error = append_pair(broken, at, -result);
        if (error)
            goto failed;
    }
    return Py_BuildValue("(NNN)", done, partial, broken);
failed:
    Py_XDECREF(done);
    Py_XDECREF(partial);
    Py_XDECREF(broken);
    return NULL;
}

static PyObject *
sends_send(PyObject *module, PyObject *args)
{
    PyObject *wires, *socks;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "OO:send", &wires, &socks))
        return NULL;
    struct target *targets = collect(state_of(module), wires, socks, &count);
    if (targets == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    send_each(targets, count);
    Py_END_ALLOW_THREADS
    PyObject *lists = report(targets, count);
    PyMem_Free(targets);
    return lists;
}

/* A ring: queues that this process and the kernel share. `fd` is -1 once it is closed. */
typedef struct {
    PyObject_HEAD
    int fd;
    int busy;
    unsigned entries;
    size_t queues_size;
    void *queues;
    size_t requests_size;
#if HAS_RING
    struct io_uring_sqe *requests;
    unsigned *head, *tail, *completed_head, *completed_tail;
    unsigned mask, completed_mask;
    struct io_uring_cqe *completed;
#endif
} Ring;

static void
ring_end(Ring *ring)
{
#if HAS_RING
    if (ring->requests != NULL)
        munmap(ring->requests, ring->requests_size);
    if (ring->queues != NULL)
        munmap(ring->queues, ring->queues_size);
    ring->requests = NULL;
    ring->queues = NULL;
#endif
    if (ring->fd >= 0)
        close(ring->fd);
    ring->fd = -1;
}

#if HAS_RING
static void *
shared(Ring *ring, size_t size, off_t what)
{
    void *start = mmap(
        NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, what);
    if (start == MAP_FAILED)
        return NULL;
    madvise(start, size, MADV_DONTFORK); /* two processes must not write to one queue */
    return start;
}

/* Open the ring; return 0, or an errno. */
static int
ring_open(Ring *ring, unsigned entries)
{
    struct io_uring_params params = {.flags = IORING_SETUP_SUBMIT_ALL};
    ring->fd = (int)syscall(__NR_io_uring_setup, entries, &params);
    if (ring->fd < 0)
        return errno;
    if (!(params.features & IORING_FEAT_SINGLE_MMAP))
        return ENOSYS;
    ring->entries = params.sq_entries;
    size_t submitting = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t completing = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    ring->queues_size = submitting > completing ? submitting : completing;
    ring->queues = shared(ring, ring->queues_size, IORING_OFF_SQ_RING);
    if (ring->queues == NULL)
        return errno;
    ring->requests_size = params.sq_entries * sizeof(struct io_uring_sqe);
    ring->requests = shared(ring, ring->requests_size, IORING_OFF_SQES);
    if (ring->requests == NULL)
        return errno;
    char *base = ring->queues;
    ring->head = (unsigned *)(base + params.sq_off.head);
    ring->tail = (unsigned *)(base + params.sq_off.tail);
    ring->mask = *(unsigned *)(base + params.sq_off.ring_mask);
    ring->completed_head = (unsigned *)(base + params.cq_off.head);
    ring->completed_tail = (unsigned *)(base + params.cq_off.tail);
    ring->completed_mask = *(unsigned *)(base + params.cq_off.ring_mask);
    ring->completed = (struct io_uring_cqe *)(base + params.cq_off.cqes);
    unsigned *array = (unsigned *)(base + params.sq_off.array);
    for (unsigned at = 0; at < params.sq_entries; at++)
        array[at] = at; /* requests lie in the order of the queue */
    return 0;
}

/* Take the results that are there; return their number. */
static unsigned
ring_reap(Ring *ring, struct target *targets)
{
    unsigned head = *ring->completed_head;
    unsigned tail = __atomic_load_n(ring->completed_tail, __ATOMIC_ACQUIRE);
    unsigned count = tail - head;
    for (; head != tail; head++) {
        struct io_uring_cqe *entry = &ring->completed[head & ring->completed_mask];
        targets[entry->user_data].result = entry->res;
    }
    __atomic_store_n(ring->completed_head, head, __ATOMIC_RELEASE);
    return count;
}

/* Send to as many as the ring holds; return how many of `targets` were looked at, or 0 if the ring
 * took nothing more and must not be used again. Called without the GIL. */
static Py_ssize_t
ring_batch(Ring *ring, struct target *targets, Py_ssize_t count)
{
    unsigned tail = *ring->tail;
    unsigned waiting = 0;
    Py_ssize_t at = 0;
    for (; at < count && waiting < ring->entries; at++) {
        if (targets[at].result != PENDING)
            continue;
        struct io_uring_sqe *request = &ring->requests[tail & ring->mask];
        *request = (struct io_uring_sqe){
            .opcode = IORING_OP_SEND,
            .fd = targets[at].fd,
            .addr = (unsigned long)targets[at].bytes,
            .len = (unsigned)targets[at].size,
            .msg_flags = FLAGS,
            .user_data = (unsigned long)at,
        };
        tail++;
        waiting++;
    }
    __atomic_store_n(ring->tail, tail, __ATOMIC_RELEASE);
    unsigned given = 0, taken = 0; /* to the kernel, and back from it */
    while (taken < waiting) {
        long more = syscall(__NR_io_uring_enter, ring->fd, waiting - given, waiting - taken,
                            IORING_ENTER_GETEVENTS, NULL, 0);
        if (more > 0)
            given += (unsigned)more;
        unsigned news = ring_reap(ring, targets);
        taken += news;
        if (more < 0 && errno == EINTR)
            continue;
        if ((more < 0 || (more == 0 && news == 0)) && taken >= given)
            break; /* the kernel takes no more, and owes nothing */
    }
    if (taken == waiting)
        return at;
    __atomic_store_n(ring->tail, *ring->head, __ATOMIC_RELEASE); /* withdraw the others */
    return 0;
}

/* Send by the ring, and what it does not take by the loop. Called without the GIL. */
static void
ring_send_all(Ring *ring, struct target *targets, Py_ssize_t count)
{
    for (Py_ssize_t at = 0; at < count;) {
        Py_ssize_t more = ring_batch(ring, targets + at, count - at);
        if (more == 0) {
            ring_end(ring);
            send_each(targets + at, count - at);
            return;
        }
        at += more;
    }
}
#else
static int
ring_open(Ring *ring, unsigned entries)
{
    (void)ring;
    (void)entries;
    return ENOSYS;
}

static void
ring_send_all(Ring *ring, struct target *targets, Py_ssize_t count)
{
    (void)ring;
    send_each(targets, count);
}
#endif

static PyObject *
ring_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    unsigned entries;
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Ring takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "I:Ring", &entries))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Ring *ring = (Ring *)allocate(type, 0);
    if (ring == NULL)
        return NULL;
    ring->fd = -1;
    int error = ring_open(ring, entries);
    if (error) {
        Py_DECREF((PyObject *)ring);
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return (PyObject *)ring;
}

static void
ring_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ring_end((Ring *)self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *
ring_send(PyObject *self, PyObject *args)
{
    Ring *ring = (Ring *)self;
    PyObject *wires, *socks;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "OO:send", &wires, &socks))
        return NULL;
    State *state = (State *)PyType_GetModuleState(Py_TYPE(self));
    if (state == NULL)
        return NULL;
    struct target *targets = collect(state, wires, socks, &count);
    if (targets == NULL)
        return NULL;
    if (ring->busy) {
        PyMem_Free(targets);
        PyErr_SetString(PyExc_RuntimeError, "another thread sends with this ring");
        return NULL;
    }
    ring->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    if (ring->fd >= 0)
        ring_send_all(ring, targets, count);
    else
        send_each(targets, count);
    Py_END_ALLOW_THREADS
    ring->busy = 0;
    PyObject *lists = report(targets, count);
    PyMem_Free(targets);
    return lists;
}

static PyObject *
ring_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (((Ring *)self)->busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread sends with this ring");
        return NULL;
    }
    ring_end((Ring *)self);
    Py_RETURN_NONE;
}

static PyObject *
ring_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((Ring *)self)->fd < 0);
}

static PyMethodDef ring_methods[] = {
    {"send", ring_send, METH_VARARGS, "Send as the function `send` does, in batches of the ring."},
    {"close", ring_close, METH_NOARGS, "Close the ring; `send` goes on with a loop."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef ring_properties[] = {
    {"closed", ring_closed, NULL, "Whether the ring was closed, or the kernel refused it.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot ring_slots[] = {
    {Py_tp_doc, "An io_uring for the sends of one thread at a time. Raises OSError without one."},
    {Py_tp_new, ring_new},
    {Py_tp_dealloc, ring_free},
    {Py_tp_methods, ring_methods},
    {Py_tp_getset, ring_properties},
    {0, NULL},
};

static PyType_Spec ring_spec = {
    .name = "mdserver.server.clients._sends.Ring",
    .basicsize = sizeof(Ring),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = ring_slots,
};

static int
sends_exec(PyObject *module)
{
    State *state = state_of(module);
    state->fileno = PyUnicode_InternFromString("fileno");
    if (state->fileno == NULL)
        return -1;
    state->ring_type = PyType_FromModuleAndSpec(module, &ring_spec, NULL);
    if (state->ring_type == NULL)
        return -1;
    return PyModule_AddObjectRef(module, "Ring", state->ring_type);
}

static int
sends_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = state_of(module);
    Py_VISIT(state->fileno);
    Py_VISIT(state->ring_type);
    return 0;
}

static int
sends_clear(PyObject *module)
{
    State *state = state_of(module);
    Py_CLEAR(state->fileno);
    Py_CLEAR(state->ring_type);
    return 0;
}

static PyMethodDef functions[] = {
    {"send", sends_send, METH_VARARGS,
     "Send wires[i] to socks[i]; return (done, partial, failed).\n\n"
     "`done` has the indices of those that were sent as a whole, `partial` (index, bytes sent) of\n"
     "those whose sockets take no more, `failed` (index, errno) of broken connections."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, sends_exec},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "mdserver.server.clients._sends",
    .m_doc = "Sends bytes to many sockets in one call.",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = sends_traverse,
    .m_clear = sends_clear,
};

PyMODINIT_FUNC
PyInit__sends(void)
{
    return PyModuleDef_Init(&definition);
}
