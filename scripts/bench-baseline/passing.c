/* libpassing.so: passes each call on to the next definition, and does nothing else.
 *
 * The least that a preloaded library costs a program that keeps its own allocator.
 * `scripts/bench-allocators` measures it beside the library in its `program` mode.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#define PUBLIC __attribute__((visibility("default")))

static void find(void);

/* Until the constructor of this library has run, a call comes here first. */
#define NEXT(result, name, parameters, arguments)                                \
    static result first_##name parameters { find(); return name arguments; }     \
    static result(*next_##name) parameters = first_##name;                       \
    PUBLIC result name parameters { return next_##name arguments; }

PUBLIC void *malloc(size_t);
PUBLIC void free(void *);
PUBLIC void *calloc(size_t, size_t);
PUBLIC void *realloc(void *, size_t);
PUBLIC void *memalign(size_t, size_t);
PUBLIC void *aligned_alloc(size_t, size_t);
PUBLIC int posix_memalign(void **, size_t, size_t);
PUBLIC size_t malloc_usable_size(void *);

NEXT(void *, malloc, (size_t size), (size))
NEXT(void, free, (void *block), (block))
NEXT(void *, calloc, (size_t count, size_t size), (count, size))
NEXT(void *, realloc, (void *block, size_t size), (block, size))
NEXT(void *, memalign, (size_t alignment, size_t size), (alignment, size))
NEXT(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
NEXT(int, posix_memalign, (void **out, size_t alignment, size_t size), (out, alignment, size))
NEXT(size_t, malloc_usable_size, (void *block), (block))

#define FIND(name) next_##name = (__typeof__(next_##name))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void find(void)
{
    FIND(malloc);
    FIND(free);
    FIND(calloc);
    FIND(realloc);
    FIND(memalign);
    FIND(aligned_alloc);
    FIND(posix_memalign);
    FIND(malloc_usable_size);
}
