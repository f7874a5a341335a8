// The entry points of the interpreter and the few functions of the C library
// that differ from wasi-libc's.

#include <Python.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <wasi/api.h>

#define EXPORT(name) __attribute__((export_name(name)))

#define BOOT "/usr/lib/sallyport/boot.py"
#define LIBRARY L"/usr/lib/python313.zip"

static PyObject *run_function;

// refuse_streams is an audit hook. Descriptors 0 to 2 carry frames: once sessions may
// run, they cannot be opened. A hook in Python would be called for everything that is
// audited, which id() and sys._getframe() are.
static int
refuse_streams(const char *event, PyObject *args, void *unused)
{
    (void)unused;
    if (run_function == NULL || strcmp(event, "open") != 0) {
        return 0;
    }
    PyObject *path = PyTuple_GET_ITEM(args, 0);
    int overflow = 0;
    if (!PyLong_CheckExact(path)) {
        return 0;
    }
    long fd = PyLong_AsLongAndOverflow(path, &overflow);
    if (overflow || fd < 0 || fd > 2) {
        return 0;
    }
    PyObject *error = Py_BuildValue(
        "is", EBADF,
        "the standard streams have no descriptors here: use sys.stdin, "
        "sys.stdout, sys.stderr");
    if (error != NULL) {
        PyErr_SetObject(PyExc_OSError, error);
        Py_DECREF(error);
    }
    return -1;
}

// configure sets where the interpreter finds itself and its library.
static PyStatus
configure(PyConfig *config)
{
    struct {
        wchar_t **field;
        const wchar_t *value;
    } strings[] = {
        {&config->program_name, L"python3"},
        {&config->executable, L"/usr/bin/python3"},
        {&config->base_executable, L"/usr/bin/python3"},
        {&config->prefix, L"/usr"},
        {&config->base_prefix, L"/usr"},
        {&config->exec_prefix, L"/usr"},
        {&config->base_exec_prefix, L"/usr"},
    };
    for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++) {
        PyStatus status =
            PyConfig_SetString(config, strings[i].field, strings[i].value);
        if (PyStatus_Exception(status)) {
            return status;
        }
    }
    config->module_search_paths_set = 1;
    return PyWideStringList_Append(&config->module_search_paths, LIBRARY);
}

// initialise starts the interpreter without the environment, without site and
// with the library in one zip file.
static PyStatus
initialise(void)
{
    if (PySys_AddAuditHook(refuse_streams, NULL) < 0) {
        return PyStatus_NoMemory();
    }
    PyPreConfig pre;
    PyPreConfig_InitIsolatedConfig(&pre);
    pre.utf8_mode = 1;
    PyStatus status = Py_PreInitialize(&pre);
    if (PyStatus_Exception(status)) {
        return status;
    }
    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    config.site_import = 0;
    config.write_bytecode = 0;
    config.install_signal_handlers = 1;
    config.use_hash_seed = 0;
    config.pathconfig_warnings = 0;
    status = configure(&config);
    if (!PyStatus_Exception(status)) {
        status = Py_InitializeFromConfig(&config);
    }
    PyConfig_Clear(&config);
    return status;
}

// read_file returns the content of a file as bytes.
static PyObject *
read_file(const char *path)
{
    PyObject *io = PyImport_ImportModule("_io");
    if (io == NULL) {
        return NULL;
    }
    PyObject *file = PyObject_CallMethod(io, "open", "ss", path, "rb");
    Py_DECREF(io);
    if (file == NULL) {
        return NULL;
    }
    PyObject *text = PyObject_CallMethod(file, "read", NULL);
    if (text != NULL) {
        PyObject *closed = PyObject_CallMethod(file, "close", NULL);
        if (closed == NULL) {
            Py_CLEAR(text);
        }
        Py_XDECREF(closed);
    }
    Py_DECREF(file);
    return text;
}

// load executes the boot file and keeps its function run.
static int
load(void)
{
    PyObject *text = read_file(BOOT);
    if (text == NULL) {
        return -1;
    }
    const char *source = PyBytes_AsString(text);
    PyObject *code =
        source == NULL ? NULL : Py_CompileString(source, BOOT, Py_file_input);
    Py_DECREF(text);
    if (code == NULL) {
        return -1;
    }
    PyObject *module =
        PyImport_ExecCodeModuleEx("_sallyport_boot", code, BOOT);
    Py_DECREF(code);
    if (module == NULL) {
        return -1;
    }
    run_function = PyObject_GetAttrString(module, "run");
    Py_DECREF(module);
    return run_function == NULL ? -1 : 0;
}

// boot starts the interpreter and executes the boot file. It returns 0, or 1
// after it printed what failed.
EXPORT("boot") int32_t
boot(void)
{
    if (Py_IsInitialized()) {
        fprintf(stderr, "the interpreter is started already\n");
        return 1;
    }
    PyStatus status = initialise();
    if (PyStatus_Exception(status)) {
        fprintf(stderr, "%s: %s\n", status.func ? status.func : "python",
                status.err_msg ? status.err_msg : "exit");
        return 1;
    }
    if (load() < 0) {
        PyErr_Print();
        return 1;
    }
    return 0;
}

// run calls the boot file's function run and returns its result, or -1 after
// it printed the exception.
EXPORT("run") int64_t
run(void)
{
    if (run_function == NULL) {
        return -1;
    }
    PyObject *result = PyObject_CallNoArgs(run_function);
    long long n = -1;
    if (result != NULL) {
        n = PyLong_AsLongLong(result);
        Py_DECREF(result);
    }
    if (PyErr_Occurred()) {
        // PyErr_Print would end the process at a SystemExit.
        PyErr_DisplayException(PyErr_GetRaisedException());
        return -1;
    }
    return n;
}

// interrupt makes the interpreter raise KeyboardInterrupt at its next check.
// The host calls it inside one of its own functions; before boot it does
// nothing.
EXPORT("interrupt") void
interrupt(void)
{
    if (Py_IsInitialized()) {
        PyErr_SetInterrupt();
    }
}

// nanoseconds returns a time as one number, or the largest one if it does not
// fit.
static uint64_t
nanoseconds(const struct timespec *t)
{
    uint64_t n;
    if (__builtin_mul_overflow((uint64_t)t->tv_sec, 1000000000u, &n) ||
        __builtin_add_overflow(n, (uint64_t)t->tv_nsec, &n)) {
        return UINT64_MAX;
    }
    return n;
}

// clock_nanosleep asks the host for a relative time only, and returns the
// host's error, so that a sleep that was interrupted is not taken for one that
// is not supported.
int
clock_nanosleep(clockid_t clock, int flags, const struct timespec *request,
                struct timespec *remain)
{
    (void)remain;
    if (flags & ~TIMER_ABSTIME || request->tv_sec < 0 ||
        request->tv_nsec < 0 || request->tv_nsec >= 1000000000) {
        return EINVAL;
    }
    uint64_t timeout = nanoseconds(request);
    if (flags & TIMER_ABSTIME) {
        struct timespec now;
        if (clock_gettime(clock, &now) != 0) {
            return errno;
        }
        uint64_t passed = nanoseconds(&now);
        timeout = passed < timeout ? timeout - passed : 0;
    }
    __wasi_subscription_t subscription = {
        .u.tag = __WASI_EVENTTYPE_CLOCK,
        .u.u.clock.id = __WASI_CLOCKID_MONOTONIC,
        .u.u.clock.timeout = timeout,
    };
    __wasi_event_t event;
    __wasi_size_t events;
    __wasi_errno_t error =
        __wasi_poll_oneoff(&subscription, &event, 1, &events);
    return error != 0 ? error : event.error;
}

// The socket module is there because much of the library imports it. There are
// no sockets, so its functions fail without asking the host.

static int
no_socket(void)
{
    errno = ENOTSUP;
    return -1;
}

int
accept(int fd, struct sockaddr *restrict address, socklen_t *restrict length)
{
    return no_socket();
}

int
accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict length,
        int flags)
{
    return no_socket();
}

ssize_t
recv(int fd, void *buffer, size_t length, int flags)
{
    return no_socket();
}

ssize_t
send(int fd, const void *buffer, size_t length, int flags)
{
    return no_socket();
}

int
shutdown(int fd, int how)
{
    return no_socket();
}
