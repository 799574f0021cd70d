"""The disk port: all access of the broker to files.

1. Code that uses a disk receives a `Disk`; the faulty disk subclasses `Disk` and `File`.
2. Failures are `OSError` with the path. A write is complete or raises; its caller truncates the rest of a failed one.
3. A `File` owns one descriptor and closes it with its last reference, so the bytes of a region stay readable.
4. The loop reads what is in the page cache (`read_now`, `resident`); a job reads the rest into it (`read_ahead`).
"""

import errno
import os
import re
import stat
import sys

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrnoWithFilenameObject
from libc.errno cimport EAGAIN, EINTR, errno as c_errno
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from posix.types cimport off_t

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <sys/uio.h>
    #include <unistd.h>
    #ifdef __linux__
    #include <sys/vfs.h>
    #endif
    /* The type of the file system of `fd`; 0 if it is not known. */
    static long kl_file_system(int fd) {
    #ifdef __linux__
        struct statfs found;
        return fstatfs(fd, &found) == 0 ? found.f_type : 0;
    #else
        (void) fd;
        return 0;
    #endif
    }
    /* Whether syncfs reports every failed write of the file system of `fd`: file systems of which it is known. FUSE
       ignores it, overlayfs knows no errors of the layer below. */
    static int kl_sync_all_reports(int fd) {
        long type = kl_file_system(fd);
        return type == 0xEF53 || type == 0x58465342 || type == 0x9123683E;  /* ext4 xfs btrfs */
    }
    static int kl_sync_all(int fd) {
    #ifdef __linux__
        return syncfs(fd);
    #else
        (void) fd;
        errno = ENOSYS;
        return -1;
    #endif
    }
    /* A read of what is in the page cache; EAGAIN where the disk would be asked. tmpfs does not know RWF_NOWAIT. */
    static ssize_t kl_read_now(int fd, void *target, size_t size, off_t offset) {
    #ifdef RWF_NOWAIT
        struct iovec part = {target, size};
        ssize_t got = preadv2(fd, &part, 1, offset, RWF_NOWAIT);
        int in_memory = got < 0 && errno == EOPNOTSUPP && kl_file_system(fd) == 0x01021994;  /* tmpfs */
        return in_memory ? pread(fd, target, size, offset) : got;
    #else
        (void) fd; (void) target; (void) size; (void) offset;
        errno = EOPNOTSUPP;
        return -1;
    #endif
    }
    static void kl_read_ahead(int fd, off_t offset, off_t size) {
    #ifdef POSIX_FADV_WILLNEED
        posix_fadvise(fd, offset, size, POSIX_FADV_WILLNEED);  /* a hint: there is nothing to do where it fails */
    #else
        (void) fd; (void) offset; (void) size;
    #endif
    }
    /* An open-file-description lock: refused to other processes and to other descriptors of this one alike. */
    static int kl_lock(int fd) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    #ifdef F_OFD_SETLK
        return fcntl(fd, F_OFD_SETLK, &lock);
    #else
        return fcntl(fd, F_SETLK, &lock);
    #endif
    }
    """
    int kl_sync_all_reports(int fd) nogil
    int kl_sync_all(int fd) nogil
    int kl_lock(int fd) nogil
    ssize_t kl_read_now(int fd, void *target, size_t size, off_t offset) nogil
    void kl_read_ahead(int fd, off_t offset, off_t size) nogil

cdef extern from "<unistd.h>" nogil:
    ssize_t c_pread "pread"(int fd, void *buf, size_t count, off_t offset)
    int c_close "close"(int fd)

cdef extern from "<sys/uio.h>" nogil:
    ssize_t c_pwritev "pwritev"(int fd, const iovec *iov, int iovcnt, off_t offset)

FILE_MODE = 0o644
SYNC_ALL_REPORTS = sys.platform == "linux" and tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= (5, 8)
cdef enum:
    PARTS_MAX = 1024          # IOV_MAX of Linux
    # The kernel reads ahead in runs of 128 KiB and drops pages in runs, too: one page represents its run.
    PROBE_BYTES = 128 * 1024
    SCRATCH_BYTES = 64 * 1024   # read at once by `read_ahead`, into memory that is then freed


cdef class File:
    """One open file.

    Arguments:
        path: where it was opened; kept for messages only, as a rename does not close it.
        fd: the descriptor, owned from now on.
    """

    def __cinit__(self, str path, int fd):
        self.path = path
        self.fd = fd

    def __init__(self, path, fd):
        self.watched = type(self) is not File

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)

    def __repr__(self):
        return f"{type(self).__name__}({self.path!r}, fd={self.fd})"

    def before(self, str operation, int64_t offset, int64_t size):
        """Called ahead of "write", "read", "truncate" and "sync" on a subclass.

        Result: how many of `size` bytes may be written before the write fails (`size` = no fault). May raise OSError.
        """
        return size

    def size(self):
        """Bytes in the file now. Raises OSError."""
        return os.fstat(self.fd).st_size

    def pread(self, Py_ssize_t n, int64_t offset):
        """Up to `n` bytes from `offset`; fewer only at the end of the file. Raises OSError."""
        if n < 0:
            raise ValueError(f"cannot read {n} bytes")
        cdef bytes data = PyBytes_FromStringAndSize(NULL, n)
        cdef Py_ssize_t got = self.read_into(PyBytes_AS_STRING(data), n, offset)
        return data if got == n else data[:got]

    def resident(self, int64_t offset, int64_t size):
        """Whether this range is in the page cache: 1 yes, 0 no, -1 the file system does not know."""
        return probe(self.fd, offset, size)

    cdef int resident_now(self, int64_t offset, int64_t size) except -2:
        return self.resident(offset, size) if self.watched else probe(self.fd, offset, size)

    cdef Py_ssize_t read_now(self, void *target, Py_ssize_t size, int64_t offset) except -1:
        """Read the resident part of `size` bytes: their number, NOT_RESIDENT or RESIDENCE_UNKNOWN."""
        cdef ssize_t got
        cdef int resident
        if self.watched:
            resident = self.resident(offset, size)
            if resident != 1:
                return NOT_RESIDENT if resident == 0 else RESIDENCE_UNKNOWN
            return self.read_into(target, size, offset)
        while True:
            got = kl_read_now(self.fd, target, size, offset)
            if got >= 0:
                return got
            if c_errno == EAGAIN:
                return NOT_RESIDENT
            if c_errno != EINTR:
                # Any other error is one of the disk: the read of a job reports it.
                return RESIDENCE_UNKNOWN

    def read_ahead(self, int64_t offset, int64_t size, int64_t ahead=0):
        """Job: read a range into the page cache, without the GIL.

        Arguments:
            offset, size: the range.
            ahead: the kernel is asked to read this many bytes after the range, too, without waiting for them.

        Raises OSError.
        """
        cdef char *scratch
        cdef ssize_t got = 1
        cdef int64_t end = offset + size
        cdef int failed = 0
        if self.watched:
            self.before("read", offset, size)
        scratch = <char *> malloc(SCRATCH_BYTES)
        if scratch == NULL:
            raise MemoryError
        with nogil:
            while offset < end and got != 0:
                got = c_pread(self.fd, scratch, min(<int64_t> SCRATCH_BYTES, end - offset), offset)
                if got > 0:
                    offset += got
                elif got < 0 and c_errno != EINTR:
                    failed = c_errno
                    break
            if ahead > 0 and failed == 0:
                kl_read_ahead(self.fd, end, ahead)
        free(scratch)
        if failed:
            raise OSError(failed, os.strerror(failed), self.path)

    def pread_outside(self, Py_ssize_t n, int64_t offset):
        """`pread` for a job: the loop continues while the job waits for the disk."""
        if n < 0:
            raise ValueError(f"cannot read {n} bytes")
        if self.watched:
            return self.pread(n, offset)
        cdef bytes data = PyBytes_FromStringAndSize(NULL, n)
        cdef char *target = PyBytes_AS_STRING(data)
        cdef Py_ssize_t done = 0
        cdef ssize_t got = 1
        cdef int failed = 0
        with nogil:
            while done < n and got != 0:
                got = c_pread(self.fd, target + done, n - done, offset + done)
                if got > 0:
                    done += got
                elif got < 0 and c_errno != EINTR:
                    failed = c_errno
                    break
        if failed:
            raise OSError(failed, os.strerror(failed), self.path)
        return data if done == n else data[:done]

    cdef Py_ssize_t read_into(self, void *target, Py_ssize_t size, int64_t offset) except -1:
        """Read until `size` bytes are read or the file ends; return the number of bytes."""
        cdef Py_ssize_t done = 0
        cdef ssize_t got
        if self.watched:
            self.before("read", offset, size)
        while done < size:
            got = c_pread(self.fd, <char *> target + done, size - done, offset + done)
            if got < 0:
                if c_errno == EINTR:
                    PyErr_CheckSignals()
                    continue
                PyErr_SetFromErrnoWithFilenameObject(OSError, self.path)
            if got == 0:
                break
            done += got
        return done

    def pwrite(self, data, int64_t offset):
        """Write all of `data` at `offset`; return its size. Raises OSError, having written a part at most."""
        cdef Py_buffer view
        cdef iovec part
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            part.iov_base = view.buf
            part.iov_len = view.len
            self.write_vec(&part, 1, offset)
            return view.len
        finally:
            PyBuffer_Release(&view)

    cdef int write_vec(self, iovec *parts, int count, int64_t offset) except -1:
        """Write all parts one after the other at `offset`, or raise OSError. The array is used up."""
        cdef int64_t total = 0
        cdef int64_t allowed
        cdef int i
        if self.watched:
            for i in range(count):
                total += parts[i].iov_len
            allowed = self.before("write", offset, total)
            if allowed < total:
                write_all(self, parts, shorten(parts, count, allowed), offset)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        return write_all(self, parts, count, offset)

    def truncate(self, int64_t size):
        """Truncate (or extend with zeros) to `size` bytes. Raises OSError."""
        if self.watched:
            self.before("truncate", size, 0)
        os.ftruncate(self.fd, size)

    def sync(self):
        """fdatasync: the data and the size are on the disk when this returns. Raises OSError; never to be retried."""
        if self.watched:
            self.before("sync", 0, 0)
        os.fdatasync(self.fd)

    def sync_all(self):
        """syncfs: everything that was written to the file system of this file is on the disk when this returns.

        Result: False, with nothing done, where the system does not report failed writes by syncfs. Linux does since
        5.8, once for each descriptor, from its opening on: this file must have been opened before the writes.

        Raises OSError where a write failed, of whichever file of the file system; never to be retried.
        """
        cdef int result
        if not SYNC_ALL_REPORTS or not kl_sync_all_reports(self.fd):
            return False
        with nogil:
            result = kl_sync_all(self.fd)
        if result != 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, self.path)
        return True

    def lock(self):
        """Take the exclusive lock. Raises BlockingIOError if it is held, also by this process."""
        if kl_lock(self.fd) != 0:
            if c_errno == errno.EACCES:
                raise BlockingIOError(errno.EAGAIN, "the lock is held", self.path)
            PyErr_SetFromErrnoWithFilenameObject(OSError, self.path)

    def close(self):
        """Close now, despite other references. A second call does nothing."""
        cdef int fd = self.fd
        self.fd = -1
        if fd >= 0:
            os.close(fd)


cdef int probe(int fd, int64_t offset, int64_t size) noexcept nogil:
    """As `File.resident`: one byte of every run, and the last one."""
    cdef char byte
    cdef int64_t last = offset + size - 1
    while True:
        if kl_read_now(fd, &byte, 1, offset) < 0:
            if c_errno == EINTR:
                continue
            return 0 if c_errno == EAGAIN else -1
        if offset >= last:
            return 1
        offset = min(offset + PROBE_BYTES, last)


cdef int shorten(iovec *parts, int count, int64_t size) noexcept nogil:
    """Shorten the parts to `size` bytes in total; return the number of parts left."""
    cdef int i = 0
    while i < count and size > 0:
        if <int64_t> parts[i].iov_len > size:
            parts[i].iov_len = size
        size -= parts[i].iov_len
        i += 1
    return i


cdef int write_all(File file, iovec *parts, int count, int64_t offset) except -1:
    # A short write is continued: the next call returns the reason (usually ENOSPC).
    cdef ssize_t got
    cdef int first = 0
    while first < count:
        got = c_pwritev(file.fd, parts + first, min(count - first, <int> PARTS_MAX), offset)
        if got < 0:
            if c_errno == EINTR:
                PyErr_CheckSignals()
                continue
            PyErr_SetFromErrnoWithFilenameObject(OSError, file.path)
        offset += got
        while first < count and <size_t> got >= parts[first].iov_len:
            got -= parts[first].iov_len
            first += 1
        if got > 0:
            parts[first].iov_base = <char *> parts[first].iov_base + got
            parts[first].iov_len -= got
    return 0


cdef class FileRegion:
    """A run of bytes of an open file, readable until the region is freed, also after the file is deleted.

    Arguments: the file, the offset and the length in bytes.
    """

    def __cinit__(self, File file not None, int64_t offset, int64_t length):
        self.file = file
        self.offset = offset
        self.length = length

    def __len__(self):
        return self.length

    def __repr__(self):
        return f"FileRegion({self.file.path!r}, {self.offset}, {self.length})"

    def read(self):
        """The bytes. Raises OSError, also where the file has become shorter meanwhile."""
        data = self.file.pread(self.length, self.offset)
        if len(data) < self.length:
            raise OSError(errno.EIO, "the file ends inside the region", self.file.path)
        return data


cdef class Disk:
    """The file system. Every method raises OSError."""

    def open(self, str path, *, bint create=False, bint read_only=False):
        """Open for reading and writing (or reading only); `create` creates a missing file."""
        cdef int flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        return self.make_file(path, os.open(path, flags, FILE_MODE))

    def make_file(self, str path, int fd):
        """The object around a fresh descriptor; a subclass returns its own type."""
        return File(path, fd)

    def read_bytes(self, str path):
        """The whole file."""
        cdef File file = self.open(path, read_only=True)
        return file.pread_outside(file.size(), 0)

    def write_atomic(self, str path, data, *, bint sync):
        """`replace` without the file. Raises OSError."""
        self.replace(path, data, sync=sync).close()

    def replace(self, str path, data, *, bint sync):
        """Replace the file at once: write `<path>.tmp`, rename; with `sync` also fsync file and directory.

        Every descriptor is taken before the rename, so that EMFILE and ENFILE leave the old file. The temporary file
        of a call that fails is removed: it would take space until the next start. Result: the new file, open.
        """
        cdef str temporary = path + ".tmp", directory = os.path.dirname(path) or "."
        cdef File opened = self.open_dir(directory) if sync else None
        cdef File file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
            if sync:
                file.sync()
            self.rename(temporary, path)
        except OSError:
            self.remove(temporary)
            raise
        if sync:
            self.sync_open_dir(opened)
        file.path = path
        return file

    def list(self, str path):
        """Names in a directory, sorted."""
        return sorted(os.listdir(path))

    def exists(self, str path):
        return os.path.lexists(path)

    def is_dir(self, str path):
        return os.path.isdir(path)

    def size(self, str path):
        """Bytes of the file at `path`."""
        return os.stat(path).st_size

    def modified_ms(self, str path):
        """When the file was last written, in ms of wall time."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def make_dir(self, str path):
        """Create a directory and its missing parents, if it does not exist."""
        os.makedirs(path, exist_ok=True)

    def remove(self, str path):
        os.unlink(path)

    def rename(self, str old, str new):
        """Atomic; replaces a file at `new`."""
        os.rename(old, new)

    def remove_tree(self, str path):
        """Remove a directory and all in it; of a symbolic link, the link alone, as Kafka (Utils.delete)."""
        if os.path.islink(path):
            os.unlink(path)
            return
        try:  # files only, as in a partition's directory: a third of the system calls and of the interpreter's lock
            for name in os.listdir(path):
                os.unlink(f"{path}/{name}")
            os.rmdir(path)
        except (IsADirectoryError, PermissionError):  # of another directory in it; EPERM on systems that are not Linux
            import shutil  # a start is quicker without

            shutil.rmtree(path)

    def sync_dir(self, str path):
        """fsync a directory: creations, renames and removals in it are on the disk when this returns."""
        self.sync_open_dir(self.open_dir(path))

    def open_dir(self, str path):
        """A directory, for `sync_open_dir`. Raises OSError."""
        return File(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def sync_open_dir(self, File directory):
        """fsync a directory that `open_dir` opened. Raises OSError."""
        os.fsync(directory.fd)

    def free_bytes(self, str path):
        """(free for us, total) bytes of the file system that holds `path`."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def is_regular(self, str path):
        """Whether `path` is a plain file (not a directory, link, device)."""
        try:
            return stat.S_ISREG(os.lstat(path).st_mode)
        except FileNotFoundError:
            return False
