"""Threads that sync the files of a batch concurrently and without the GIL.

1. Stages follow one another: files by path, files with record batches, directories. A failed stage ends the batch.
2. Within a stage there is no order. The writeback of all files with record batches is started first, then each is
   waited for: the file system commits many files at once, instead of one commit per file.
3. The threads never take the GIL and use no Python object: the caller of the batch keeps files and paths alive.
4. A batch ends when no thread uses it any more; then one number is written to the descriptor of the owner.
5. An error is reported, never retried, also that of the start of a writeback, because the wait may not report it again.
6. The threads block all signals. The first one starts with the object, the others when a batch has work for them.
"""

import os

from kafkalite._speedups.storage.file cimport File
from libc.errno cimport EINVAL, EMFILE, ENFILE, ENOENT, ENOSYS, EPERM, ESPIPE, errno as c_errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <pthread.h>
    #include <signal.h>
    #include <unistd.h>
    /* Start the writeback, without waiting for it. */
    static int kl_start_writing(int fd) {
    #ifdef SYNC_FILE_RANGE_WRITE
        return sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    #else
        (void) fd;
        return 0;
    #endif
    }
    /* A thread whose signals are all blocked, so that every handler runs where Python expects it. */
    static int kl_start_thread(pthread_t *thread, void *(*body)(void *), void *argument) {
        sigset_t all, before;
        int error;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        error = pthread_create(thread, NULL, body, argument);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return error;
    }
    """
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    enum: O_RDONLY, O_RDWR, O_CLOEXEC, O_DIRECTORY
    int kl_start_writing(int fd) nogil
    int kl_start_thread(pthread_t *thread, void *(*body)(void *) noexcept nogil, void *argument) nogil
    int pthread_join(pthread_t thread, void **result) nogil
    int pthread_mutex_init(pthread_mutex_t *lock, void *attributes) nogil
    int pthread_mutex_destroy(pthread_mutex_t *lock) nogil
    int pthread_mutex_lock(pthread_mutex_t *lock) nogil
    int pthread_mutex_unlock(pthread_mutex_t *lock) nogil
    int pthread_cond_init(pthread_cond_t *condition, void *attributes) nogil
    int pthread_cond_destroy(pthread_cond_t *condition) nogil
    int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock) nogil
    int pthread_cond_signal(pthread_cond_t *condition) nogil
    int pthread_cond_broadcast(pthread_cond_t *condition) nogil
    int c_open "open"(const char *path, int flags) nogil
    int c_close "close"(int fd) nogil
    int c_fsync "fsync"(int fd) nogil
    int c_fdatasync "fdatasync"(int fd) nogil
    ssize_t c_write "write"(int fd, const void *data, size_t size) nogil

cdef enum:
    THREADS_MAX = 16
    # Stages, in order.
    BY_PATH = 0
    BATCHES = 1
    DIRECTORY = 2

cdef struct Item:
    int stage
    int fd                # of a file of batches
    const char *path      # of the others
    int start_error       # of starting its writeback
    int error

cdef struct Shared:
    pthread_mutex_t lock
    pthread_cond_t work   # a thread waits for an item
    pthread_cond_t over   # the owner waits for the end of the batch
    Item *items
    int count
    int started           # next item whose writeback is to be started
    int next_sync         # next item to sync
    int stage_end         # index after the last item of the stage
    int left              # calls of the stage that have not returned
    bint running
    bint stopping
    int wake_fd


cdef class SyncThreads:
    """Threads that sync one batch at a time.

    Arguments:
        wake_fd: an eventfd, or another descriptor that accepts 8 bytes, written to when a batch has ended; not owned.
        threads_max: maximum of concurrent syncs, 1 to 16.

    Raises OSError when the first thread cannot be started.
    """

    cdef Shared shared
    cdef pthread_t threads[THREADS_MAX]
    cdef readonly int threads_count
    cdef int threads_max
    cdef int capacity
    cdef bint closed
    cdef list kept          # objects that own the memory of the items
    cdef list names

    def __cinit__(self, int wake_fd, int threads_max=4):
        if not 1 <= threads_max <= THREADS_MAX:
            raise ValueError(f"{threads_max} threads; 1 to {THREADS_MAX} are possible")
        memset(&self.shared, 0, sizeof(Shared))
        self.shared.wake_fd = wake_fd
        self.threads_max = threads_max
        self.kept = []
        self.names = []
        pthread_mutex_init(&self.shared.lock, NULL)
        pthread_cond_init(&self.shared.work, NULL)
        pthread_cond_init(&self.shared.over, NULL)
        cdef int error = self.add_thread()
        if error:
            raise OSError(error, os.strerror(error))

    def __dealloc__(self):
        self.stop()
        free(self.shared.items)
        pthread_cond_destroy(&self.shared.over)
        pthread_cond_destroy(&self.shared.work)
        pthread_mutex_destroy(&self.shared.lock)

    cdef int add_thread(self) noexcept:
        cdef int error = kl_start_thread(&self.threads[self.threads_count], serve, &self.shared)
        if error == 0:
            self.threads_count += 1
        return error

    def begin(self, list paths not None, list files not None, list directories not None):
        """Start a batch; the owner reads `result` after the number has arrived.

        Arguments:
            paths: paths of files to open and sync; a missing file is skipped.
            files: open files with record batches. Only plain `File` objects: others have a hook for each sync.
            directories: paths of directories to open and sync; a missing directory is skipped.

        Raises RuntimeError while a batch is running or after `close`, ValueError for an empty batch, TypeError for a
        file with a hook.
        """
        cdef int count = len(paths) + len(files) + len(directories)
        cdef int i = 0
        if self.closed or self.names:
            raise RuntimeError("the threads are closed" if self.closed else "a batch is in progress")
        if count == 0:
            raise ValueError("there is nothing to sync")
        self.grow(count)
        for path in paths:
            self.add_path(i, BY_PATH, path)
            i += 1
        for file in files:
            self.add_file(i, file)
            i += 1
        for path in directories:
            self.add_path(i, DIRECTORY, path)
            i += 1
        self.kept = [paths[:], files[:], directories[:]]
        self.names = [*paths, *[file.path for file in files], *directories]
        while self.threads_count < min(self.threads_max, count):
            if self.add_thread() != 0:
                break      # the threads that exist sync all items
        with nogil:
            pthread_mutex_lock(&self.shared.lock)
            self.shared.count = count
            self.shared.running = True
            begin_stage(&self.shared, 0)
            pthread_mutex_unlock(&self.shared.lock)

    cdef int grow(self, int count) except -1:
        cdef Item *items
        if count > self.capacity:
            items = <Item *> realloc(self.shared.items, count * sizeof(Item))
            if items == NULL:
                raise MemoryError
            self.shared.items = items
            self.capacity = count
        return 0

    cdef int add_path(self, int i, int stage, bytes path) except -1:
        cdef Item *item = &self.shared.items[i]
        memset(item, 0, sizeof(Item))
        item.stage = stage
        item.path = path
        return 0

    cdef int add_file(self, int i, File file) except -1:
        cdef Item *item = &self.shared.items[i]
        if file.watched:
            raise TypeError(f"{file!r} has a hook for fsync: flush it in a job")
        memset(item, 0, sizeof(Item))
        item.stage = BATCHES
        item.fd = file.fd
        return 0

    @property
    def busy(self):
        """Whether a batch is running."""
        cdef bint running
        pthread_mutex_lock(&self.shared.lock)
        running = self.shared.running
        pthread_mutex_unlock(&self.shared.lock)
        return running

    def wait(self):
        """Wait until no batch is running."""
        with nogil:
            pthread_mutex_lock(&self.shared.lock)
            while self.shared.running:
                pthread_cond_wait(&self.shared.over, &self.shared.lock)
            pthread_mutex_unlock(&self.shared.lock)

    def result(self):
        """Return the first OSError of the ended batch, or None. Raises RuntimeError while the batch is running.

        EMFILE and ENFILE are returned only when there is no other error, because only they may be retried.
        """
        cdef int i
        cdef int error
        if self.busy:
            raise RuntimeError("the batch is still in progress")
        failure = None
        for i in range(len(self.names)):
            error = self.shared.items[i].start_error or self.shared.items[i].error
            if error and (failure is None or failure.errno in (EMFILE, ENFILE)):
                failure = OSError(error, os.strerror(error), os.fsdecode(self.names[i]))
        self.kept = []
        self.names = []
        return failure

    def close(self):
        """Wait for the running batch, then end every thread. A second call does nothing."""
        self.closed = True
        with nogil:
            self.stop()

    cdef void stop(self) noexcept nogil:
        cdef int i
        pthread_mutex_lock(&self.shared.lock)
        while self.shared.running:
            pthread_cond_wait(&self.shared.over, &self.shared.lock)
        self.shared.stopping = True
        pthread_cond_broadcast(&self.shared.work)
        pthread_mutex_unlock(&self.shared.lock)
        for i in range(self.threads_count):
            pthread_join(self.threads[i], NULL)
        self.threads_count = 0


cdef void begin_stage(Shared *shared, int first) noexcept nogil:
    """Release the items of the stage that begins at `first` to the threads; the caller holds the lock."""
    cdef int stage = shared.items[first].stage
    cdef int end = first
    cdef int count
    while end < shared.count and shared.items[end].stage == stage:
        end += 1
    count = end - first
    # A single file needs no separate start of its writeback.
    shared.started = first if stage == BATCHES and count > 1 else end
    shared.next_sync = first
    shared.stage_end = end
    shared.left = count + end - shared.started
    if count > 1:
        pthread_cond_broadcast(&shared.work)
    else:
        pthread_cond_signal(&shared.work)


cdef void *serve(void *argument) noexcept nogil:
    """The body of a sync thread."""
    cdef Shared *shared = <Shared *> argument
    cdef Item *item
    pthread_mutex_lock(&shared.lock)
    while True:
        if shared.started < shared.stage_end:
            item = &shared.items[shared.started]
            shared.started += 1
            pthread_mutex_unlock(&shared.lock)
            item.start_error = start_writeback(item.fd)
        elif shared.next_sync < shared.stage_end:
            item = &shared.items[shared.next_sync]
            shared.next_sync += 1
            pthread_mutex_unlock(&shared.lock)
            item.error = sync_item(item)
        elif shared.stopping:
            break
        else:
            pthread_cond_wait(&shared.work, &shared.lock)
            continue
        pthread_mutex_lock(&shared.lock)
        shared.left -= 1
        if shared.left == 0:
            stage_ended(shared)
    pthread_mutex_unlock(&shared.lock)
    return NULL


cdef void stage_ended(Shared *shared) noexcept nogil:
    """Begin the next stage, or end the batch; the caller holds the lock."""
    cdef uint64_t one = 1
    cdef int i
    cdef bint failed = False
    for i in range(shared.stage_end):
        failed = failed or shared.items[i].error != 0 or shared.items[i].start_error != 0
    if shared.stage_end < shared.count and not failed:
        begin_stage(shared, shared.stage_end)
        return
    shared.running = False
    pthread_cond_broadcast(&shared.over)
    c_write(shared.wake_fd, &one, sizeof(one))    # a full counter is fine: the owner has not read it yet


cdef int start_writeback(int fd) noexcept nogil:
    if kl_start_writing(fd) == 0:
        return 0
    # Where the call is not supported, the sync starts the writeback.
    return 0 if c_errno in (ENOSYS, EINVAL, ESPIPE, EPERM) else c_errno


cdef int sync_item(Item *item) noexcept nogil:
    """Sync one item; return 0 or an errno. A missing file was deleted or renamed, and needs no sync."""
    cdef int fd
    cdef int error = 0
    if item.stage == BATCHES:
        return 0 if c_fdatasync(item.fd) == 0 else c_errno
    fd = c_open(item.path, O_CLOEXEC | (O_RDONLY | O_DIRECTORY if item.stage == DIRECTORY else O_RDWR))
    if fd < 0:
        return 0 if c_errno == ENOENT else c_errno
    if (c_fsync(fd) if item.stage == DIRECTORY else c_fdatasync(fd)) != 0:
        error = c_errno
    c_close(fd)
    return error
