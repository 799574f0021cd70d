"""Runs many changes of names and small files in one call, without the GIL between them.

A job that creates hundreds of files by Python calls waits for the GIL after each system call, up to 5 ms (the switch
interval) while the loop is busy.

1. The changes run in order, on the calling thread. A failed one does not stop the later ones.
2. No Python object is used between the first and the last change; the bytes of the caller are kept alive.
"""

import os

from libc.errno cimport EINTR, errno as c_errno
from libc.stdlib cimport calloc, free

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <sys/stat.h>
    #include <unistd.h>
    /* Ask for the writing to begin, so that one commit of the file system covers many files; a hint. */
    static void kl_begin_writing(int fd) {
    #ifdef SYNC_FILE_RANGE_WRITE
        sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);  /* the sync that follows reports what fails */
    #else
        (void) fd;
    #endif
    }
    """
    ctypedef int mode_t
    enum: O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_CLOEXEC
    void kl_begin_writing(int fd) nogil
    int c_mkdir "mkdir"(const char *path, mode_t mode) nogil
    int c_rename "rename"(const char *old, const char *new) nogil
    int c_open "open"(const char *path, int flags, mode_t mode) nogil
    int c_close "close"(int fd) nogil
    int c_unlink "unlink"(const char *path) nogil
    ssize_t c_write "write"(int fd, const void *data, size_t size) nogil

cdef enum:
    DIRECTORY_MODE = 0o777
    FILE_MODE = 0o644
    MAKE = 0
    CREATE = 1
    WRITE = 2
    MOVE = 3

MAKE_DIRECTORY, CREATE_EMPTY, WRITE_FILE, RENAME = MAKE, CREATE, WRITE, MOVE

cdef struct Change:
    int kind
    const char *path
    const char *argument
    size_t size
    int error


def apply_changes(list changes not None, bint sync_soon=False):
    """Apply all changes.

    Arguments:
        changes: tuples of kind, path and argument (both bytes). MAKE_DIRECTORY: a directory that does not exist.
            CREATE_EMPTY: an empty file that does not exist. WRITE_FILE: a file with the argument as content, new or
            replaced in place; it is removed where it cannot be written whole. RENAME: to the argument.
        sync_soon: the files are going to be synced one by one: their writing begins at once.

    Returns the OSErrors of those that failed, by their index in `changes`.
    """
    cdef Py_ssize_t count = len(changes)
    cdef Py_ssize_t i
    cdef Change *items = <Change *> calloc(max(count, 1), sizeof(Change))
    cdef bytes path, argument
    if items == NULL:
        raise MemoryError
    try:
        for i in range(count):
            kind, path, argument = changes[i]
            items[i].kind = kind
            items[i].path = path
            items[i].argument = argument
            items[i].size = len(argument)
        kept = changes[:]  # the pointers lead into its bytes
        with nogil:
            for i in range(count):
                items[i].error = apply(&items[i], sync_soon)
        return {
            i: OSError(items[i].error, os.strerror(items[i].error), os.fsdecode(kept[i][1]))
            for i in range(count) if items[i].error
        }
    finally:
        free(items)


cdef int apply(Change *change, bint sync_soon) noexcept nogil:
    """Apply one change; return 0 or its errno."""
    cdef int done
    if change.kind == MAKE:
        done = c_mkdir(change.path, DIRECTORY_MODE)
    elif change.kind == CREATE:
        done = create_empty(change.path)
    elif change.kind == WRITE:
        return write_file(change, sync_soon)
    else:
        done = c_rename(change.path, change.argument)
    return 0 if done >= 0 else c_errno


cdef int create_empty(const char *path) noexcept nogil:
    cdef int fd = open_new(path, O_EXCL)
    return fd if fd < 0 else c_close(fd)


cdef int open_new(const char *path, int flags) noexcept nogil:
    cdef int fd = -1
    while fd < 0:
        fd = c_open(path, O_RDWR | O_CREAT | O_CLOEXEC | flags, FILE_MODE)
        if fd < 0 and c_errno != EINTR:
            break
    return fd


cdef int write_file(Change *change, bint sync_soon) noexcept nogil:
    """Write a file; return 0 or an errno. An incomplete file is removed."""
    cdef int fd = open_new(change.path, O_TRUNC)
    cdef size_t written = 0
    cdef ssize_t got
    cdef int error = 0
    if fd < 0:
        return c_errno
    while written < change.size:
        got = c_write(fd, change.argument + written, change.size - written)
        if got >= 0:
            written += got
        elif c_errno != EINTR:
            error = c_errno
            break
    if sync_soon and not error:
        kl_begin_writing(fd)
    c_close(fd)
    if error:
        c_unlink(change.path)
    return error
