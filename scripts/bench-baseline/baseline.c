/* libbaseline.so: the same jemalloc as in libheapprof.so, without hooks.
 *
 * Every profiler here is compared with it. It differs from libheapprof.so by the hooks, and by the
 * shorter paths that small reallocs, callocs and aligned blocks have there
 * (preload/src/allocator/heap.rs). Otherwise each function treats its arguments exactly as
 * preload/src/hooks/malloc.rs and preload/src/allocator/heap.rs do, and the compiled-in options are
 * the same. `scripts/bench` links it with the libjemalloc_pic.a that cargo built for the library.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

void *_rjem_malloc(size_t);
void *_rjem_calloc(size_t, size_t);
void *_rjem_realloc(void *, size_t);
void _rjem_free(void *);
void *_rjem_mallocx(size_t, int);
size_t _rjem_malloc_usable_size(void *);

/* As in allocator/heap.rs. */
#define PUBLIC __attribute__((visibility("default")))
PUBLIC const char *_rjem_malloc_conf = 
    "abort_conf:false,oversize_threshold:33554432,lg_extent_max_active_fit:32";
enum { SMALLEST = 9 };
static inline size_t bent(size_t size) { return size < SMALLEST ? SMALLEST : size; }

PUBLIC void *malloc(size_t size) { return _rjem_malloc(bent(size)); }
PUBLIC void free(void *block) { _rjem_free(block); }
PUBLIC void cfree(void *block) { _rjem_free(block); }

PUBLIC void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!__builtin_mul_overflow(count, size, &bytes) && bytes < SMALLEST) return _rjem_calloc(1, SMALLEST);
    return _rjem_calloc(count, size);
}

PUBLIC void *realloc(void *block, size_t size)
{
    if (size == 0 && block != NULL) {
        _rjem_free(block);
        return NULL;
    }
    return _rjem_realloc(block, bent(size));
}

PUBLIC void *reallocarray(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, bytes);
}

static void *aligned(size_t alignment, size_t size)
{
    if (alignment < 16) alignment = 16;
    if (size > PTRDIFF_MAX || alignment > PTRDIFF_MAX / 2) return NULL;
    int shift = 64 - __builtin_clzl(alignment - 1); /* of the next power of two */
    return _rjem_mallocx(bent(size), shift); /* MALLOCX_LG_ALIGN(shift) */
}

static void *or_out_of_memory(void *block)
{
    if (block == NULL) errno = ENOMEM;
    return block;
}

PUBLIC void *memalign(size_t alignment, size_t size) { return or_out_of_memory(aligned(alignment, size)); }
PUBLIC void *aligned_alloc(size_t alignment, size_t size) { return or_out_of_memory(aligned(alignment, size)); }
PUBLIC void *valloc(size_t size) { return or_out_of_memory(aligned(4096, size)); }
PUBLIC void *pvalloc(size_t size) { return or_out_of_memory(aligned(4096, (size + 4095) & ~(size_t)4095)); }

PUBLIC int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (alignment % sizeof(void *) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
    void *block = aligned(alignment, size);
    if (block == NULL) return ENOMEM;
    *out = block;
    return 0;
}

PUBLIC size_t malloc_usable_size(void *block) { return _rjem_malloc_usable_size(block); }
