// What SQLite asks of the system about files that several connections use. There is
// one process, and what SQLite knows of its own connections is all there is to know:
// no other process has a lock or the shared memory of a write-ahead log.

#ifndef SALLYPORT_SQLITE_H
#define SALLYPORT_SQLITE_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// wasi-libc names no locks.
#define F_GETLK 1001
#define F_SETLK 1002
#define F_SETLKW 1003
#define F_RDLCK 0
#define F_WRLCK 1
#define F_UNLCK 2

static int
alone_fcntl(int fd, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    switch (command) {
    case F_GETLK:
        ((struct flock *)argument)->l_type = F_UNLCK;
        return 0;
    case F_SETLK:
    case F_SETLKW:
        return 0;
    default:
        return fcntl(fd, command, argument);
    }
}

// alone_mmap returns memory for a file that has no content yet.
static void *
alone_mmap(void *address, size_t size, int access, int flags, int fd,
           off_t offset)
{
    void *memory = calloc(1, size);
    if (memory == NULL) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return memory;
}

static int
alone_munmap(void *memory, size_t size)
{
    free(memory);
    return 0;
}

// All files are those of one user, who is not root.

static uid_t
geteuid(void)
{
    return 65534;
}

static int
fchown(int fd, uid_t user, gid_t group)
{
    return 0;
}

#define fcntl alone_fcntl
#define mmap alone_mmap
#define munmap alone_munmap

#endif
