/* Situation: a program that relies on what glibc documents (or has always done) for its allocation
 * functions: results, errno, alignment, contents, and the odd corners.
 * A correct profiler changes none of this: every line is `ok`, `skip` (the function does not exist
 * here) or `note` (allowed to differ, worth knowing).
 * If it is wrong: programs behave differently under the profiler if they probe for overflow, retry
 * on ENOMEM, keep errno across free or rely on realloc(p, 0). A function left to glibc gives blocks
 * that crash our free.
 *
 *   api_conformance [group ...]     all groups without arguments; `api_conformance list` names them
 *
 * A group that kills the process is reported as `FAIL <group>: died of signal <n>`; the groups
 * after it are not run.
 *
 * It is compiled with -fno-builtin, and sizes pass through volatile variables: the compiler may not
 * judge, merge or delete calls.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KIB = 1024, MIB = 1024 * KIB, UNTOUCHED = 4711 /* an errno that no function sets */ };

static const volatile size_t zero = 0;
static const volatile size_t too_large = (size_t)PTRDIFF_MAX + 1;
static const volatile size_t largest = SIZE_MAX;
static const volatile size_t half = SIZE_MAX / 2 + 1; /* twice this is 0 */

/* ---- reporting ---- */

static int failures;
static const char *current_group = "none";

__attribute__((format(printf, 3, 4))) static void check(int good, const char *name, const char *got_and_expected, ...)
{
    if (good) {
        printf("ok %s\n", name);
        return;
    }
    va_list arguments;
    va_start(arguments, got_and_expected);
    printf("FAIL %s: ", name);
    vprintf(got_and_expected, arguments);
    printf("\n");
    va_end(arguments);
    failures++;
}

static void check_errno(const char *name, int expected)
{
    int got = errno;
    check(got == expected, name, "errno %d (expected %d)", got, expected);
}

/* A failed allocation: null, and this errno. It takes the block as well, so that a wrong success is
 * not a leak. */
static void check_failed(const char *name, void *block, int expected_errno)
{
    int got = errno;
    check(block == NULL && got == expected_errno, name, "%s, errno %d (expected null, errno %d)",
          block ? "a block" : "null", got, expected_errno);
    free(block);
}

static void check_aligned(const char *name, const void *block, size_t alignment)
{
    check(block != NULL && (uintptr_t)block % alignment == 0, name, "%p (expected a multiple of %zu)", block, alignment);
}

static void died(int signal)
{
    char line[128];
    int length = snprintf(line, sizeof line, "FAIL %s: died of signal %d (expected to live)\n", current_group, signal);
    fflush(stdout);
    if (write(1, line, (size_t)length) != length)
        _exit(3);
    _exit(1);
}

static int holds(const unsigned char *block, size_t length, unsigned char value)
{
    for (size_t i = 0; i < length; i++)
        if (block[i] != value)
            return 0;
    return 1;
}

/* ---- malloc ---- */

static void malloc_results(void)
{
    /* glibc: malloc(0) returns a unique pointer that can be passed to free. */
    void *a = malloc(zero), *b = malloc(zero);
    check(a != NULL && b != NULL && a != b, "malloc_0_unique", "%p and %p (expected two different blocks)", a, b);
    free(a);
    free(b);

    /* glibc, x86-64: every block is aligned to 16 bytes, also those smaller than 16. */
    int misaligned = 0;
    for (volatile size_t size = 0; size <= 4096; size++) {
        void *block = malloc(size);
        misaligned += (uintptr_t)block % 16 != 0;
        free(block);
    }
    check(misaligned == 0, "malloc_alignment_16", "%d sizes below 4096 misaligned (expected 0)", misaligned);

    /* glibc: more than PTRDIFF_MAX bytes is never given: NULL and ENOMEM. */
    errno = UNTOUCHED;
    check_failed("malloc_above_ptrdiff_max", malloc(too_large), ENOMEM);
    errno = UNTOUCHED;
    check_failed("malloc_size_max", malloc(largest), ENOMEM);

    /* Nor is PTRDIFF_MAX itself, which no address space has. */
    errno = UNTOUCHED;
    check_failed("malloc_ptrdiff_max", malloc(too_large - 1), ENOMEM);

    /* A successful malloc leaves errno alone (glibc does; POSIX allows otherwise). */
    errno = UNTOUCHED;
    void *small = malloc(100), *large = malloc(32 * MIB);
    check_errno("malloc_success_keeps_errno", UNTOUCHED);
    free(small);
    free(large);
}

static void free_results(void)
{
    /* free(NULL) does nothing. */
    errno = UNTOUCHED;
    free(NULL);
    check_errno("free_null", UNTOUCHED);

    /* glibc >= 2.33: free preserves errno, also when it unmaps. */
    void *small = malloc(100), *large = malloc(64 * MIB);
    memset(large, 1, 64 * MIB);
    errno = UNTOUCHED;
    free(small);
    free(large);
    check_errno("free_keeps_errno", UNTOUCHED);

    /* Also for locked memory, which the kernel refuses to take back by madvise. */
    large = malloc(64 * MIB);
    memset(large, 1, 64 * MIB);
    if (mlock(large, 1) == 0) {
        errno = UNTOUCHED;
        free(large);
        check_errno("free_of_locked_memory_keeps_errno", UNTOUCHED);
    } else {
        printf("skip free_of_locked_memory_keeps_errno\n");
        free(large);
    }
}

/* ---- calloc ---- */

static void *dirty_then_free(size_t size)
{
    void *block = malloc(size);
    memset(block, 0xa5, size);
    void *address = escapes(block);
    free(block);
    return address;
}

static void calloc_results(void)
{
    /* calloc's memory is zero, also if freed memory is reused. */
    static const size_t sizes[] = {1, 24, 1000, 5000, 100 * KIB, 2 * MIB};
    int dirty = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        dirty_then_free(sizes[i]);
        unsigned char *block = calloc(1, sizes[i]);
        dirty += block == NULL || !holds(block, sizes[i], 0);
        free(block);
    }
    check(dirty == 0, "calloc_zeroed", "%d sizes not zero (expected 0)", dirty);

    /* Up to malloc_usable_size, too: no standard promises it, and programs rely on it. */
    dirty = 0;
    for (size_t size = 1; size < 40 * KIB; size += size / 16 + 1) {
        void *before = malloc(size);
        memset(before, 0xa5, malloc_usable_size(before));
        free(escapes(before));
        unsigned char *block = calloc(size, 1);
        dirty += block == NULL || !holds(block, malloc_usable_size(block), 0);
        free(block);
    }
    check(dirty == 0, "calloc_zeroes_what_can_be_used", "%d sizes not zero (expected 0)", dirty);

    /* calloc(0, n) and calloc(n, 0) return a unique pointer like malloc(0). */
    void *a = calloc(zero, 8), *b = calloc(8, zero);
    check(a != NULL && b != NULL && a != b, "calloc_0_unique", "%p and %p (expected two different blocks)", a, b);
    free(a);
    free(b);

    /* n * m that does not fit size_t: NULL and ENOMEM, whatever the product wraps to. */
    errno = UNTOUCHED;
    check_failed("calloc_overflow_to_0", calloc(half, 2), ENOMEM);
    errno = UNTOUCHED;
    check_failed("calloc_overflow_to_small", calloc(half + 8, 2), ENOMEM);
    errno = UNTOUCHED;
    check_failed("calloc_above_ptrdiff_max", calloc(1, too_large), ENOMEM);

    errno = UNTOUCHED;
    void *block = calloc(10, 10);
    check_errno("calloc_success_keeps_errno", UNTOUCHED);
    free(block);
}

/* ---- realloc, reallocarray ---- */

static void realloc_contents(void)
{
    /* The first min(old, new) bytes survive every growth and shrink. */
    static const size_t sizes[] = {10, 100, 90, 3000, 200 * KIB, 8 * MIB, 300 * KIB, 5000, 24, 1};
    unsigned char *block = malloc(1);
    size_t held = 1;
    int lost = 0;
    block[0] = 0x3c;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        block = realloc(block, sizes[i]);
        size_t common = held < sizes[i] ? held : sizes[i];
        lost += !holds(block, common, 0x3c);
        memset(block, 0x3c, sizes[i]);
        held = sizes[i];
    }
    check(lost == 0, "realloc_keeps_contents", "%d steps lost bytes (expected 0)", lost);
    free(block);

    /* An aligned block may be realloced; its contents survive, its alignment need not. */
    unsigned char *aligned = memalign(4096, 500);
    memset(aligned, 0x3c, 500);
    aligned = realloc(aligned, 50000);
    check(aligned != NULL && holds(aligned, 500, 0x3c), "realloc_of_aligned", "contents lost (expected kept)");
    free(aligned);
}

static void realloc_results(void)
{
    /* realloc(NULL, n) is malloc(n), also for n = 0. */
    void *a = realloc(NULL, 100), *b = realloc(NULL, zero);
    check(a != NULL, "realloc_null", "null (expected a block)");
    check(b != NULL, "realloc_null_0", "null (expected a block)");
    free(b);

    /* glibc: realloc(p, 0) frees p and returns NULL. */
    void *gone = realloc(a, zero);
    check(gone == NULL, "realloc_to_0", "%p (expected null)", gone);
    free(gone);

    /* If realloc does not free, each of 10000 blocks has an address of its own. */
    size_t different = 0;
    void *last = NULL;
    for (int i = 0; i < 10000; i++) {
        void *block = malloc(1024);
        different += block != last;
        last = escapes(block);
        free(realloc(block, zero));
    }
    check(different < 5000, "realloc_to_0_frees", "%zu new addresses in 10000 (expected few)", different);

    /* A realloc that fails returns NULL with ENOMEM, and the old block is as it was. */
    unsigned char *old = malloc(1000);
    memset(old, 0x77, 1000);
    errno = UNTOUCHED;
    check_failed("realloc_too_large", realloc(old, too_large), ENOMEM);
    errno = UNTOUCHED;
    check_failed("realloc_size_max", realloc(old, largest), ENOMEM);
    errno = UNTOUCHED;
    check_failed("realloc_ptrdiff_max", realloc(old, too_large - 1), ENOMEM);
    check(holds(old, 1000, 0x77), "realloc_failed_keeps_contents", "contents changed (expected kept)");
    old = realloc(old, 2000);
    check(old != NULL && holds(old, 1000, 0x77), "realloc_after_failure", "contents lost (expected kept)");
    free(old);

    void *block = malloc(10);
    errno = UNTOUCHED;
    block = realloc(block, 10000);
    check_errno("realloc_success_keeps_errno", UNTOUCHED);
    free(block);
}

static void reallocarray_results(void)
{
    void *made = reallocarray(NULL, 10, 10);
    check(made != NULL, "reallocarray_null", "null (expected a block)");
    free(made);

    /* n * m that does not fit: NULL and ENOMEM, and the old block is as it was. */
    unsigned char *old = malloc(100);
    memset(old, 0x77, 100);
    errno = UNTOUCHED;
    check_failed("reallocarray_overflow_to_0", reallocarray(escapes(old), half, 2), ENOMEM);
    errno = UNTOUCHED;
    check_failed("reallocarray_overflow_to_small", reallocarray(escapes(old), half + 8, 2), ENOMEM);
    check(holds(old, 100, 0x77), "reallocarray_failed_keeps_contents", "contents changed (expected kept)");
    old = reallocarray(escapes(old), 100, 100);
    check(old != NULL && holds(old, 100, 0x77), "reallocarray_keeps_contents", "contents lost (expected kept)");

    /* glibc: a product of 0 is realloc(p, 0). */
    void *gone = reallocarray(old, zero, 100);
    check(gone == NULL, "reallocarray_to_0", "%p (expected null)", gone);
    free(gone);
}

/* ---- aligned allocation ---- */

static void posix_memalign_results(void)
{
    char name[64];
    for (size_t alignment = sizeof(void *); alignment <= MIB; alignment *= 2) {
        void *block = NULL;
        int result = posix_memalign(&block, alignment, 100);
        snprintf(name, sizeof name, "posix_memalign_%zu", alignment);
        check_aligned(name, result == 0 ? block : NULL, alignment);
        free(block);
    }

    /* POSIX: the alignment must be a power of two and a multiple of sizeof(void *), else EINVAL is
     * returned. glibc: then neither *memptr nor errno changes. */
    static const size_t bad[] = {0, 1, 2, 3, 4, 12, 24, 100};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        void *const before = (void *)0x1234;
        void *block = before;
        errno = UNTOUCHED;
        int result = posix_memalign(&block, bad[i], 100);
        int errno_after = errno;
        snprintf(name, sizeof name, "posix_memalign_bad_%zu", bad[i]);
        check(result == EINVAL && block == before && errno_after == UNTOUCHED, name,
              "result %d, *memptr %p, errno %d (expected %d, %p, %d)", result, block, errno_after, EINVAL, before, UNTOUCHED);
    }

    /* Too large: ENOMEM is returned, *memptr stays. (glibc sets errno too; no standard promises
     * it.) */
    void *block = (void *)0x1234;
    int result = posix_memalign(&block, 64, too_large);
    check(result == ENOMEM && block == (void *)0x1234, "posix_memalign_too_large", "result %d, *memptr %p (expected %d, 0x1234)",
          result, block, ENOMEM);
    block = (void *)0x1234;
    result = posix_memalign(&block, 4096, largest - 100);
    check(result == ENOMEM && block == (void *)0x1234, "posix_memalign_wraps", "result %d, *memptr %p (expected %d, 0x1234)",
          result, block, ENOMEM);

    /* glibc: size 0 gives a block that can be freed. */
    block = NULL;
    result = posix_memalign(&block, 64, zero);
    check(result == 0 && block != NULL, "posix_memalign_size_0", "result %d, %p (expected 0, a block)", result, block);
    free(block);

    /* Success leaves errno alone. */
    errno = UNTOUCHED;
    block = NULL;
    result = posix_memalign(&block, 4096, 5000);
    check(result == 0 && errno == UNTOUCHED, "posix_memalign_success_keeps_errno", "errno %d (expected %d)", errno, UNTOUCHED);
    free(block);
}

typedef void *aligned_fn(size_t alignment, size_t size);

static size_t next_power_of_two(size_t n)
{
    size_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

/* Returns true if this glibc's aligned_alloc wants a power of two. */
static bool refuses_odd_alignments(void)
{
    int major = 0, minor = 0;
    sscanf(gnu_get_libc_version(), "%d.%d", &major, &minor);
    return major > 2 || minor >= 38;
}

/* Each alignment, with sizes on both sides of every multiple of 16: two blocks at once have their
 * alignment, and their bytes to themselves. */
static void aligned_sizes(void)
{
    int misaligned = 0, short_of = 0, shared = 0;
    for (size_t alignment = sizeof(void *); alignment <= 16 * KIB; alignment *= 2)
        for (size_t size = 15; size <= 40 * KIB; size += (size + 1) % 16 < 2 ? 1 : 14 + (size > 16 * KIB) * 1024) {
            void *a = NULL, *b = NULL;
            if (posix_memalign(&a, alignment, size) != 0 || posix_memalign(&b, alignment, size) != 0)
                abort();
            misaligned += (uintptr_t)a % alignment != 0 || (uintptr_t)b % alignment != 0;
            short_of += malloc_usable_size(a) < size || malloc_usable_size(b) < size;
            memset(a, 1, size);
            memset(b, 2, size);
            shared += !holds(a, size, 1);
            free(a);
            free(b);
        }
    check(misaligned == 0 && short_of == 0 && shared == 0, "posix_memalign_sizes",
          "%d misaligned, %d too small, %d overlap (expected 0, 0, 0)", misaligned, short_of, shared);
}

/* memalign and aligned_alloc are one function in glibc up to 2.37. */
static void aligned_results(const char *function, aligned_fn *allocate)
{
    char name[64];
    for (volatile size_t alignment = 1; alignment <= MIB; alignment *= 2) {
        unsigned char *block = allocate(alignment, 100);
        snprintf(name, sizeof name, "%s_%zu", function, alignment);
        check_aligned(name, block, alignment);
        if (block != NULL)
            memset(block, 1, 100);
        free(block);
    }

    /* glibc rounds an alignment that is no power of two up to the next one; 0 counts as 1.
     * aligned_alloc accepts a size that is no multiple of the alignment. From 2.38 on it fails with
     * EINVAL. */
    bool fails = allocate == aligned_alloc && refuses_odd_alignments();
    static const volatile size_t odd[] = {0, 3, 5, 24, 48, 100, 1000, 3000, 5000};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        errno = UNTOUCHED;
        void *block = allocate(odd[i], 77);
        snprintf(name, sizeof name, "%s_not_a_power_%zu", function, odd[i]);
        if (fails) {
            check_failed(name, block, EINVAL);
            continue;
        }
        check_aligned(name, block, next_power_of_two(odd[i]));
        free(block);
    }

    /* glibc: an alignment above SIZE_MAX / 2 + 1 is EINVAL; a size that does not fit is ENOMEM. */
    errno = UNTOUCHED;
    snprintf(name, sizeof name, "%s_alignment_too_large", function);
    check_failed(name, allocate(half + 1, 100), EINVAL);
    errno = UNTOUCHED;
    snprintf(name, sizeof name, "%s_alignment_half", function);
    check_failed(name, allocate(half, 100), ENOMEM);
    errno = UNTOUCHED;
    snprintf(name, sizeof name, "%s_too_large", function);
    check_failed(name, allocate(64, too_large), ENOMEM);
    errno = UNTOUCHED;
    snprintf(name, sizeof name, "%s_wraps", function);
    check_failed(name, allocate(4096, largest - 100), ENOMEM);

    /* Size 0 gives a block. */
    void *block = allocate(64, zero);
    snprintf(name, sizeof name, "%s_size_0", function);
    check_aligned(name, block, 64);
    free(block);

    errno = UNTOUCHED;
    block = allocate(4096, 5000);
    snprintf(name, sizeof name, "%s_success_keeps_errno", function);
    check_errno(name, UNTOUCHED);
    free(block);
}

static void aligned_alloc_group(void) { aligned_results("aligned_alloc", aligned_alloc); }
static void memalign_group(void) { aligned_results("memalign", memalign); }

static void valloc_results(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    /* valloc: aligned to a page. */
    static const volatile size_t sizes[] = {0, 1, 100, 4096, 4097, 100000};
    char name[64];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *block = valloc(sizes[i]);
        snprintf(name, sizeof name, "valloc_%zu", sizes[i]);
        check_aligned(name, block, page);
        free(block);
    }
    errno = UNTOUCHED;
    check_failed("valloc_too_large", valloc(too_large), ENOMEM);
    errno = UNTOUCHED;
    check_failed("valloc_wraps", valloc(largest - 100), ENOMEM);
}

static void pvalloc_results(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    /* pvalloc: aligned to a page, and the size is rounded up to whole pages, all of them usable. */
    static const volatile size_t sizes[] = {1, 100, 4096, 4097, 100000};
    char name[64];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *block = pvalloc(sizes[i]);
        size_t rounded = (sizes[i] + page - 1) / page * page;
        snprintf(name, sizeof name, "pvalloc_%zu", sizes[i]);
        check_aligned(name, block, page);
        size_t usable = malloc_usable_size(block);
        snprintf(name, sizeof name, "pvalloc_%zu_usable", sizes[i]);
        check(usable >= rounded, name, "%zu (expected at least %zu)", usable, rounded);
        if (block != NULL && usable >= rounded)
            memset(block, 1, rounded);
        free(block);
    }
    void *block = pvalloc(zero);
    check_aligned("pvalloc_0", block, page);
    free(block);
    block = realloc(pvalloc(100), 10000);
    check(block != NULL, "pvalloc_realloc", "null (expected a block)");
    free(block);

    /* Rounding up must not wrap. */
    errno = UNTOUCHED;
    check_failed("pvalloc_too_large", pvalloc(too_large), ENOMEM);
    errno = UNTOUCHED;
    check_failed("pvalloc_wraps", pvalloc(largest - 100), ENOMEM);
}

/* ---- malloc_usable_size ---- */

static int usable_is_writable(unsigned char *block, size_t requested)
{
    size_t usable = malloc_usable_size(block);
    if (usable < requested)
        return 0;
    memset(block, 0x5c, usable);
    return holds(block, usable, 0x5c) && malloc_usable_size(block) == usable;
}

static void usable_size_results(void)
{
    check(malloc_usable_size(NULL) == 0, "usable_size_null", "%zu (expected 0)", malloc_usable_size(NULL));

    /* At least the requested bytes, every one of which is the program's: two live neighbours keep
     * their bytes. */
    int bad = 0;
    for (volatile size_t size = 0; size < 300000; size += 1 + size / 3) {
        unsigned char *first = malloc(size), *second = calloc(1, size + 1);
        unsigned char *third = memalign(64, size);
        size_t usable = malloc_usable_size(first);
        bad += !usable_is_writable(first, size) + !usable_is_writable(second, size + 1) + !usable_is_writable(third, size);
        bad += !holds(first, usable, 0x5c);
        free(first);
        free(second);
        free(third);
    }
    check(bad == 0, "usable_size_writable", "%d blocks wrong (expected 0)", bad);

    /* A program may fill the usable size and realloc: at least the requested bytes survive. */
    unsigned char *block = malloc(25);
    memset(block, 0x5c, malloc_usable_size(block));
    block = realloc(block, 4000);
    check(holds(block, 25, 0x5c), "usable_size_then_realloc", "contents lost (expected kept)");
    free(block);
}

/* ---- names that may or may not exist ---- */

static void *look_up(const char *name)
{
    void *function = dlsym(RTLD_DEFAULT, name);
    if (function == NULL)
        printf("skip %s\n", name);
    return function;
}

static void sized_free_results(void)
{
    /* C23: free_sized(p, n) is free(p) for a block of malloc(n), calloc or realloc; null is
     * allowed. */
    void (*free_sized_here)(void *, size_t);
    *(void **)&free_sized_here = look_up("free_sized");
    if (free_sized_here != NULL) {
        errno = UNTOUCHED;
        free_sized_here(malloc(100), 100);
        free_sized_here(calloc(10, 10), 100);
        free_sized_here(realloc(malloc(10), 100000), 100000);
        free_sized_here(NULL, 0);
        check_errno("free_sized", UNTOUCHED);
    }

    /* C23: free_aligned_sized(p, a, n) is free(p) for a block of aligned_alloc(a, n). */
    void (*free_aligned_sized_here)(void *, size_t, size_t);
    *(void **)&free_aligned_sized_here = look_up("free_aligned_sized");
    if (free_aligned_sized_here != NULL) {
        errno = UNTOUCHED;
        free_aligned_sized_here(aligned_alloc(64, 128), 64, 128);
        free_aligned_sized_here(aligned_alloc(4096, 8192), 4096, 8192);
        free_aligned_sized_here(NULL, 64, 0);
        check_errno("free_aligned_sized", UNTOUCHED);
    }
}

static void cfree_results(void)
{
    /* cfree left glibc's headers in 2.26; old binaries still call it. It is free. */
    void (*cfree_here)(void *);
    *(void **)&cfree_here = look_up("cfree");
    if (cfree_here == NULL)
        return;
    cfree_here(malloc(100));
    cfree_here(NULL);
    check(1, "cfree", "unreachable");
}

/* glibc's second names for the same functions: a block of one family may be freed by the other. */
static void libc_names_results(void)
{
    void *(*libc_malloc)(size_t), *(*libc_calloc)(size_t, size_t), *(*libc_realloc)(void *, size_t);
    aligned_fn *libc_memalign;
    void *(*libc_valloc)(size_t), *(*libc_pvalloc)(size_t);
    void (*libc_free)(void *);
    *(void **)&libc_malloc = look_up("__libc_malloc");
    *(void **)&libc_calloc = look_up("__libc_calloc");
    *(void **)&libc_realloc = look_up("__libc_realloc");
    *(void **)&libc_memalign = look_up("__libc_memalign");
    *(void **)&libc_valloc = look_up("__libc_valloc");
    *(void **)&libc_pvalloc = look_up("__libc_pvalloc");
    *(void **)&libc_free = look_up("__libc_free");
    if (libc_malloc)
        free(libc_malloc(100)), check(1, "__libc_malloc_then_free", "unreachable");
    if (libc_calloc)
        free(libc_calloc(10, 10)), check(1, "__libc_calloc_then_free", "unreachable");
    if (libc_realloc)
        free(libc_realloc(malloc(100), 5000)), check(1, "__libc_realloc_of_malloc", "unreachable");
    if (libc_memalign)
        free(libc_memalign(64, 100)), check(1, "__libc_memalign_then_free", "unreachable");
    if (libc_valloc)
        free(libc_valloc(100)), check(1, "__libc_valloc_then_free", "unreachable");
    if (libc_pvalloc)
        free(libc_pvalloc(100)), check(1, "__libc_pvalloc_then_free", "unreachable");
    if (libc_free)
        libc_free(malloc(100)), check(1, "malloc_then___libc_free", "unreachable");
}

/* ---- malloc's own statistics ---- */

#if !__GLIBC_PREREQ(2, 33)
#define mallinfo2 mallinfo /* this program allocates less than its numbers can hold */
#endif

static size_t in_use(void)
{
    struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

/* An increase up to what allocators keep with blocks: a sixteenth, and half a megabyte. */
static void check_grown(const char *name, size_t before, size_t by)
{
    size_t now = in_use(), most = by + by / 16 + 512 * KIB;
    check(now + 512 * KIB >= before + by && now <= before + most, name, "from %zu to %zu in use (expected %zu more)", before, now,
          by);
}

static void mallinfo_results(void)
{
#pragma GCC diagnostic push
/* this program calls mallinfo on purpose */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo old = mallinfo();
#pragma GCC diagnostic pop
    check(1, "mallinfo_callable", "unreachable");
    printf("note mallinfo arena %d uordblks %d hblkhd %d\n", old.arena, old.uordblks, old.hblkhd);

    /* glibc counts blocks below the mmap threshold in uordblks and larger ones in hblkhd. Their sum
     * is in use, as in the JVM's `C-Heap outstanding allocations`. Each byte of an arena is in use
     * or free. */
    size_t before = in_use();
    void *small[1024], *large[8];
    for (int i = 0; i < 1024; i++)
        small[i] = malloc(64 * KIB);
    check_grown("mallinfo2_counts_blocks", before, 64 * MIB);
    for (int i = 0; i < 8; i++)
        large[i] = malloc(8 * MIB);
    check_grown("mallinfo2_counts_large_blocks", before, 128 * MIB);
    for (int i = 0; i < 8; i++)
        free(large[i]);
    for (int i = 0; i < 1024; i++)
        free(small[i]);
    check_grown("mallinfo2_counts_no_freed_blocks", before, 0);
    struct mallinfo2 now = mallinfo2();
    size_t used = now.uordblks, unused = now.fordblks, arena = now.arena;
    check(used + unused == arena, "mallinfo2_arena_is_used_or_free", "%zu + %zu (expected %zu)", used, unused, arena);
}

static void tuning_results(void)
{
    /* malloc_trim: 1 if memory went back to the system, else 0. */
    int trimmed = malloc_trim(0);
    check(trimmed == 0 || trimmed == 1, "malloc_trim", "%d (expected 0 or 1)", trimmed);

    /* mallopt: 1 on success, 0 on error. */
    int set = mallopt(M_MMAP_THRESHOLD, 256 * KIB);
    check(set == 0 || set == 1, "mallopt_mmap_threshold", "%d (expected 0 or 1)", set);
    set = mallopt(M_ARENA_MAX, 2);
    check(set == 0 || set == 1, "mallopt_arena_max", "%d (expected 0 or 1)", set);
    set = mallopt(-12345, 1);
    check(set == 0 || set == 1, "mallopt_unknown", "%d (expected 0 or 1)", set);
    void *block = malloc(300 * KIB);
    check(block != NULL, "malloc_after_mallopt", "null (expected a block)");
    free(block);
}

static void malloc_info_results(void)
{
    /* malloc_stats writes to stderr and returns. */
    fflush(stderr);
    malloc_stats();
    check(1, "malloc_stats_callable", "unreachable");

    /* malloc_info(0, stream) writes an XML document that begins with <malloc and returns 0. */
    char text[64 * KIB] = "";
    FILE *stream = fmemopen(text, sizeof text, "w");
    int result = malloc_info(0, stream);
    fclose(stream);
    check(result == 0 && strncmp(text, "<malloc", 7) == 0, "malloc_info", "%d, \"%.12s\" (expected 0, \"<malloc\")",
          result, text);

    /* Any other option: glibc returns EINVAL (the manual page says -1 with errno EINVAL; accepted
     * as well). */
    errno = UNTOUCHED;
    result = malloc_info(1, stdout);
    check(result == EINVAL || (result == -1 && errno == EINVAL), "malloc_info_bad_option", "%d (expected %d)", result, EINVAL);
}

/* ---- groups ---- */

static const struct group {
    const char *name;
    void (*run)(void);
} groups[] = {
    {"malloc", malloc_results},
    {"free", free_results},
    {"calloc", calloc_results},
    {"realloc_contents", realloc_contents},
    {"realloc", realloc_results},
    {"reallocarray", reallocarray_results},
    {"posix_memalign", posix_memalign_results},
    {"aligned_sizes", aligned_sizes},
    {"aligned_alloc", aligned_alloc_group},
    {"memalign", memalign_group},
    {"valloc", valloc_results},
    {"usable_size", usable_size_results},
    {"mallinfo", mallinfo_results},
    {"tuning", tuning_results},
    {"malloc_info", malloc_info_results},
    {"sized_free", sized_free_results},
    {"cfree", cfree_results},
    {"libc_names", libc_names_results},
    {"pvalloc", pvalloc_results},
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

static void run(const struct group *group)
{
    current_group = group->name;
    group->run();
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct sigaction on_death = {.sa_handler = died};
    sigaction(SIGSEGV, &on_death, NULL);
    sigaction(SIGBUS, &on_death, NULL);
    sigaction(SIGABRT, &on_death, NULL);
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (int i = 0; i < GROUPS; i++)
            puts(groups[i].name);
        return 0;
    }
    for (int i = 0; i < GROUPS; i++) {
        int wanted = argc == 1;
        for (int j = 1; j < argc; j++)
            wanted |= strcmp(argv[j], groups[i].name) == 0;
        if (wanted)
            run(&groups[i]);
    }
    return failures != 0;
}
