"""glibc's allocator: it keeps freed memory for the next batches, and gives back the memory of a burst.

Left alone it gives the top of the heap back as soon as 128 KiB (later twice the largest block seen) are free, and takes
large blocks from the kernel one by one. A buffer of a batch, made and freed for every request, then costs a page fault
for each 4 KiB: 2.2 ms instead of 0.33 for the decompression of 1 MB, which of the two by chance (mallopt(3)).
"""

cdef extern from *:
    """
    #if defined(__GLIBC__)
    #include <malloc.h>
    static int kl_mapped_from = 0;  /* 0: this process uses the defaults */
    static int kl_keep_freed(int mapped_from, int kept) {
        kl_mapped_from = mapped_from;
        return mallopt(M_MMAP_THRESHOLD, mapped_from) && mallopt(M_TRIM_THRESHOLD, kept);
    }
    static int kl_map_from(int size) {
        return kl_mapped_from && mallopt(M_MMAP_THRESHOLD, size ? size : kl_mapped_from);
    }
    #else
    static int kl_keep_freed(int mapped_from, int kept) { (void)mapped_from; (void)kept; return 0; }
    static int kl_map_from(int size) { (void)size; return 0; }
    #endif
    #if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    static int kl_give_back(size_t free_max) {
        return mallinfo2().fordblks > free_max && malloc_trim(free_max);
    }
    #else
    static int kl_give_back(size_t free_max) { (void)free_max; return 0; }
    #endif
    """
    int kl_keep_freed(int mapped_from, int kept) nogil
    int kl_map_from(int size) nogil
    int kl_give_back(size_t free_max) nogil


def keep_freed(int mapped_from, int kept):
    """Set when memory comes from the kernel and when it goes back; return whether this allocator supports it.

    Arguments: bytes from which a block is mapped by itself, and goes back when freed; bytes that may be free at the top
        of each thread's heap. Both count for the whole process, from now on.
    """
    return kl_keep_freed(mapped_from, kept) == 1


def map_from(int size):
    """Map blocks of `size` bytes and more by themselves, until `map_from(0)`; return whether that has an effect.

    A block that is allocated meanwhile and used in part has no pages but those: in the heap it lies on pages that freed
    blocks have used. Does nothing before `keep_freed`.
    """
    return kl_map_from(size) == 1


def give_back(size_t free_max):
    """Give freed pages of all heaps to the kernel where they are more than `free_max` bytes; whether some were given.

    For a job: the heaps are locked for some milliseconds (malloc_trim(3)). Does nothing before glibc 2.33.
    """
    cdef int given
    with nogil:
        given = kl_give_back(free_max)
    return given == 1
