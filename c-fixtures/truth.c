/* The program with known truth.
 *
 * Situation: sites in C, in C++ (truth_cxx.cpp) and in a dlopened library (truth_plugin.c) allocate
 * through every entry point, from several threads, inlined and deep. Some keep, some churn, some
 * give their blocks away.
 * A correct profiler, recording everything, shows for every site exactly the line printed here;
 * when sampling, an estimate with a correct error.
 * If it is wrong: an entry point is not hooked, usable sizes are counted for requested ones, a
 * realloc loses or doubles a block, a free by another thread is missed, or inlined sites are
 * charged to their host.
 *
 *   truth [--scale N] [--threads N] [--check]
 *
 *   truth <site> <alloc objects> <alloc bytes> <in-use objects> <in-use bytes>
 *   untruthed <site> <same>      in use: exact objects, least bytes; allocated: lower bounds
 *
 * A block belongs to the innermost frame whose function is named site_*. Bytes are requested bytes:
 * n*m for calloc and reallocarray, the argument for pvalloc. A realloc of a live block to a
 * non-zero size ends the old block at its old site and is an allocation at the realloc's site;
 * realloc(p, 0) only ends it.
 */
#define _GNU_SOURCE
#include "truth_account.h"
#include "frames.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

/* ---- the account ---- */

struct account {
    size_t alloc_objects, alloc_bytes; /* grow only; any thread adds */
    size_t freed_objects, freed_bytes;
    struct kept *kept;                 /* pushed by any thread, popped by none */
};

static struct account accounts[ACCOUNTS];

static void add(size_t *counter, size_t amount)
{
    __atomic_fetch_add(counter, amount, __ATOMIC_RELAXED);
}

static void die(const char *what)
{
    fprintf(stderr, "truth: %s\n", what);
    _Exit(2);
}

void account_alloc(enum site_account site, void *block, size_t size)
{
    if (block == NULL)
        die("an allocation failed");
    add(&accounts[site].alloc_objects, 1);
    add(&accounts[site].alloc_bytes, size);
}

void account_free(enum site_account site, size_t size)
{
    add(&accounts[site].freed_objects, 1);
    add(&accounts[site].freed_bytes, size);
}

static void push(struct kept **list, void *block, size_t size)
{
    struct kept *entry = block;
    entry->size = size;
    entry->next = __atomic_load_n(list, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(list, &entry->next, entry, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

void account_keep(enum site_account site, void *block, size_t size)
{
    account_alloc(site, block, size);
    push(&accounts[site].kept, block, size);
}

/* ---- malloc, calloc ---- */

OWN_FRAME static void site_malloc_16(void)
{
    for (int i = 0; i < 2000; i++)
        account_keep(site_malloc_16_account, malloc(16), 16);
}

OWN_FRAME static void site_malloc_40(void)
{
    for (int i = 0; i < 2000; i++)
        account_keep(site_malloc_40_account, malloc(40), 40);
}

OWN_FRAME static void site_malloc_1000(void)
{
    for (int i = 0; i < 100; i++)
        account_keep(site_malloc_1000_account, malloc(1000), 1000);
}

OWN_FRAME static void site_malloc_4096_half_freed(void)
{
    for (int i = 0; i < 30; i++) {
        void *goes = escapes(malloc(4096));
        account_alloc(site_malloc_4096_half_freed_account, goes, 4096);
        account_keep(site_malloc_4096_half_freed_account, malloc(4096), 4096);
        account_free(site_malloc_4096_half_freed_account, 4096);
        free(goes);
    }
}

OWN_FRAME static void site_malloc_200000(void)
{
    account_keep(site_malloc_200000_account, malloc(200000), 200000);
}

OWN_FRAME static void site_malloc_8m(void)
{
    account_keep(site_malloc_8m_account, malloc(8 * MIB), 8 * MIB);
}

OWN_FRAME static void site_calloc(void)
{
    for (int i = 0; i < 1000; i++)
        account_keep(site_calloc_account, calloc(3, 24), 3 * 24);
}

OWN_FRAME static void site_calloc_3m(void)
{
    account_keep(site_calloc_3m_account, calloc(3, MIB), 3 * MIB);
}

/* ---- realloc: the origin allocates, the other ends the origin's block and owns the new one
 * ---- */

OWN_FRAME static void site_realloc_from_null(void)
{
    for (int i = 0; i < 300; i++)
        account_keep(site_realloc_from_null_account, realloc(escapes(NULL), 300), 300);
}

OWN_FRAME static void *site_realloc_grow_origin(void)
{
    void *block = malloc(64);
    account_alloc(site_realloc_grow_origin_account, block, 64);
    return block;
}

OWN_FRAME static void site_realloc_grow(void *block)
{
    block = realloc(block, 4096);
    account_free(site_realloc_grow_origin_account, 64);
    account_alloc(site_realloc_grow_account, block, 4096);
    block = realloc(block, 20000);
    account_free(site_realloc_grow_account, 4096);
    account_keep(site_realloc_grow_account, block, 20000);
}

OWN_FRAME static void *site_realloc_shrink_origin(void)
{
    void *block = malloc(10000);
    account_alloc(site_realloc_shrink_origin_account, block, 10000);
    return block;
}

OWN_FRAME static void site_realloc_shrink(void *block)
{
    block = realloc(block, 500);
    account_free(site_realloc_shrink_origin_account, 10000);
    account_keep(site_realloc_shrink_account, block, 500);
}

OWN_FRAME static void *site_realloc_in_place_origin(void)
{
    void *block = malloc(990);
    account_alloc(site_realloc_in_place_origin_account, block, 990);
    return block;
}

/* 990 and 1000 share a size class in glibc and in jemalloc: the address stays, the block is new. */
OWN_FRAME static void site_realloc_in_place(void *block)
{
    block = realloc(block, 1000);
    account_free(site_realloc_in_place_origin_account, 990);
    account_keep(site_realloc_in_place_account, block, 1000);
}

OWN_FRAME static void *site_realloc_moved_origin(void)
{
    void *block = malloc(100);
    account_alloc(site_realloc_moved_origin_account, block, 100);
    return block;
}

OWN_FRAME static void site_realloc_moved(void *block)
{
    block = realloc(block, 2000);
    account_free(site_realloc_moved_origin_account, 100);
    account_keep(site_realloc_moved_account, block, 2000);
}

OWN_FRAME static void *site_realloc_to_zero_origin(void)
{
    void *block = malloc(333);
    account_alloc(site_realloc_to_zero_origin_account, block, 333);
    return block;
}

/* glibc frees and returns NULL, musl returns an empty block. An allocator that does otherwise is
 * not its equal: one note. */
OWN_FRAME static void site_realloc_to_zero(void *block)
{
    static int noted;
    volatile size_t zero = 0;
    void *nothing = realloc(block, zero);
    account_free(site_realloc_to_zero_origin_account, 333);
    if (nothing != NULL) {
        account_alloc(site_realloc_to_zero_account, nothing, 0);
        account_free(site_realloc_to_zero_account, 0);
        free(nothing);
    }
    if ((nothing != NULL) != (BLOCKS_OF_ZERO > 0) && !__atomic_exchange_n(&noted, 1, __ATOMIC_RELAXED))
        fprintf(stderr, "truth: note: realloc(p, 0) %s\n", nothing == NULL ? "returned null" : "returned a block");
}

/* Neighbours first, so that most cannot grow where they are. */
static void reallocs_that_move(void)
{
    void *blocks[100];
    for (int i = 0; i < 100; i++)
        blocks[i] = site_realloc_moved_origin();
    for (int i = 0; i < 100; i++)
        site_realloc_moved(blocks[i]);
}

static void reallocs(void)
{
    site_realloc_from_null();
    for (int i = 0; i < 10; i++)
        site_realloc_grow(site_realloc_grow_origin());
    for (int i = 0; i < 20; i++)
        site_realloc_shrink(site_realloc_shrink_origin());
    for (int i = 0; i < 100; i++)
        site_realloc_in_place(site_realloc_in_place_origin());
    for (int i = 0; i < 200; i++)
        site_realloc_to_zero(site_realloc_to_zero_origin());
    reallocs_that_move();
}

OWN_FRAME static void site_reallocarray(void)
{
    for (int i = 0; i < 100; i++) {
        void *block = reallocarray(escapes(NULL), 10, 50);
        account_alloc(site_reallocarray_account, block, 10 * 50);
        block = reallocarray(block, 20, 50);
        account_free(site_reallocarray_account, 10 * 50);
        account_keep(site_reallocarray_account, block, 20 * 50);
    }
}

/* ---- aligned ---- */

OWN_FRAME static void site_posix_memalign(void)
{
    for (int i = 0; i < 200; i++) {
        void *block = NULL;
        if (posix_memalign(&block, 64, 500) != 0)
            die("posix_memalign failed");
        account_keep(site_posix_memalign_account, block, 500);
    }
}

OWN_FRAME static void site_posix_memalign_2m(void)
{
    void *block = NULL;
    if (posix_memalign(&block, 2 * MIB, 2 * MIB) != 0)
        die("posix_memalign failed");
    account_keep(site_posix_memalign_2m_account, block, 2 * MIB);
}

OWN_FRAME static void site_aligned_alloc(void)
{
    for (int i = 0; i < 100; i++)
        account_keep(site_aligned_alloc_account, aligned_alloc(256, 1024), 1024);
}

OWN_FRAME static void site_memalign(void)
{
    for (int i = 0; i < 20; i++)
        account_keep(site_memalign_account, memalign(4096, 3000), 3000);
}

OWN_FRAME static void site_valloc(void)
{
    for (int i = 0; i < 20; i++)
        account_keep(site_valloc_account, valloc(5000), 5000);
}

#ifndef __GLIBC__
void *pvalloc(size_t); /* in no other libc; the profiler has it */
#endif

OWN_FRAME static void site_pvalloc(void)
{
    for (int i = 0; i < 20; i++)
        account_keep(site_pvalloc_account, pvalloc(5000), 5000);
}

/* ---- libc functions that allocate ---- */

static char text_of_300[301]; /* filled by main */
static wchar_t wide_text_of_20[21];

OWN_FRAME static void site_strdup(void)
{
    const char *text = escapes(text_of_300 + 201);
    for (int i = 0; i < 500; i++)
        account_keep(site_strdup_account, strdup(text), 100);
}

OWN_FRAME static void site_strndup(void)
{
    const char *text = escapes(text_of_300);
    for (int i = 0; i < 500; i++)
        account_keep(site_strndup_account, strndup(text, 50), 51);
}

OWN_FRAME static void site_wcsdup(void)
{
    const wchar_t *text = escapes(wide_text_of_20);
    for (int i = 0; i < 200; i++)
        account_keep(site_wcsdup_account, wcsdup(text), 21 * sizeof(wchar_t));
}

/* The line is 300 bytes: the buffer getline makes holds at least 301. */
OWN_FRAME static void site_getline(FILE *lines)
{
    for (int i = 0; i < 20; i++) {
        char *line = NULL;
        size_t capacity = 0;
        if (getline(&line, &capacity, lines) < 0)
            die("getline failed");
        account_keep(site_getline_account, line, 301);
    }
}

OWN_FRAME static void site_asprintf(void)
{
    for (int i = 0; i < 50; i++) {
        char *text = NULL;
        if (asprintf(&text, "%400d", i) != 400)
            die("asprintf failed");
        account_keep(site_asprintf_account, text, 401);
    }
}

/* The stream's own memory is allocated here, above the site: 20 lines of 299 letters and a
 * newline. */
static void getlines(void)
{
    char buffer[20 * 300];
    memset(buffer, 'x', sizeof buffer);
    for (int i = 0; i < 20; i++)
        buffer[i * 300 + 299] = '\n';
    FILE *lines = fmemopen(buffer, sizeof buffer, "r");
    if (lines == NULL)
        die("fmemopen failed");
    char stream_buffer[512];
    setvbuf(lines, stream_buffer, _IOFBF, sizeof stream_buffer);
    site_getline(lines);
    fclose(lines);
}

/* ---- churn ---- */

OWN_FRAME static void site_churn_24(void)
{
    for (int i = 0; i < 5000; i++) {
        void *block = escapes(malloc(24));
        account_alloc(site_churn_24_account, block, 24);
        account_free(site_churn_24_account, 24);
        free(block);
    }
}

OWN_FRAME static void site_churn_mixed(void)
{
    for (int i = 0; i < 100; i++)
        for (size_t size = 16; size <= 4096; size *= 2) {
            void *block = escapes(malloc(size));
            account_alloc(site_churn_mixed_account, block, size);
            account_free(site_churn_mixed_account, size);
            free(block);
        }
}

OWN_FRAME static void site_churn_100000(void)
{
    for (int i = 0; i < 4; i++) {
        void *block = escapes(malloc(100000));
        account_alloc(site_churn_100000_account, block, 100000);
        account_free(site_churn_100000_account, 100000);
        free(block);
    }
}

OWN_FRAME static void site_churn_1m(void)
{
    for (int i = 0; i < 4; i++) {
        void *block = escapes(malloc(MIB));
        account_alloc(site_churn_1m_account, block, MIB);
        account_free(site_churn_1m_account, MIB);
        free(block);
    }
}

/* ---- C23's sized free, where the libc or the allocator has it ---- */

static void (*free_sized_or_free)(void *, size_t);
static void (*free_aligned_sized_or_free)(void *, size_t, size_t);

static void plain_free_sized(void *block, size_t size) { (void)size; free(block); }
static void plain_free_aligned_sized(void *block, size_t align, size_t size) { (void)align; (void)size; free(block); }

static void find_sized_frees(void)
{
    *(void **)&free_sized_or_free = dlsym(RTLD_DEFAULT, "free_sized");
    *(void **)&free_aligned_sized_or_free = dlsym(RTLD_DEFAULT, "free_aligned_sized");
    if (free_sized_or_free == NULL)
        free_sized_or_free = plain_free_sized;
    if (free_aligned_sized_or_free == NULL)
        free_aligned_sized_or_free = plain_free_aligned_sized;
}

OWN_FRAME static void site_free_sized(void)
{
    for (int i = 0; i < 500; i++) {
        void *block = malloc(96);
        account_alloc(site_free_sized_account, block, 96);
        account_free(site_free_sized_account, 96);
        free_sized_or_free(block, 96);
    }
}

OWN_FRAME static void site_free_aligned_sized(void)
{
    for (int i = 0; i < 200; i++) {
        void *block = aligned_alloc(128, 384);
        account_alloc(site_free_aligned_sized_account, block, 384);
        account_free(site_free_aligned_sized_account, 384);
        free_aligned_sized_or_free(block, 128, 384);
    }
}

/* ---- inlined ---- */

NO_FRAME void *helper_without_frame(size_t size) { return malloc(size); }
NO_FRAME void *helper_around_helper(size_t size) { return helper_without_frame(size); }
NO_FRAME void *helper_around_both(size_t size) { return helper_around_helper(size); }

OWN_FRAME static void site_inline_helper(void)
{
    for (int i = 0; i < 500; i++)
        account_keep(site_inline_helper_account, helper_without_frame(160), 160);
}

OWN_FRAME static void site_inline_helper_3_deep(void)
{
    for (int i = 0; i < 500; i++)
        account_keep(site_inline_helper_3_deep_account, helper_around_both(176), 176);
}

NO_FRAME void site_inlined_one(void)
{
    for (int i = 0; i < 400; i++)
        account_keep(site_inlined_one_account, malloc(208), 208);
}

NO_FRAME void site_inlined_two(void)
{
    for (int i = 0; i < 300; i++)
        account_keep(site_inlined_two_account, malloc(224), 224);
}

/* Two sites in one machine function: only DWARF tells them apart. */
OWN_FRAME static void host_of_inlined_sites(void)
{
    site_inlined_one();
    site_inlined_two();
}

NO_FRAME void site_inlined_within_site(void)
{
    for (int i = 0; i < 200; i++)
        account_keep(site_inlined_within_site_account, malloc(272), 272);
}

/* Without inline information all 400 blocks would be charged to this one. */
OWN_FRAME static void site_around_inlined_site(void)
{
    for (int i = 0; i < 200; i++)
        account_keep(site_around_inlined_site_account, malloc(240), 240);
    site_inlined_within_site();
}

/* ---- deep ---- */

OWN_FRAME static void *malloc_below(int frames, size_t size)
{
    if (frames == 0)
        return malloc(size);
    void *block = malloc_below(frames - 1, size);
    NO_TAIL_CALL();
    return block;
}

OWN_FRAME static void site_above_recursion_40(void)
{
    for (int i = 0; i < 200; i++)
        account_keep(site_above_recursion_40_account, malloc_below(40, 288), 288);
}

/* A profiler that keeps fewer than 200 frames never sees this function. */
OWN_FRAME static void site_above_recursion_200(void)
{
    for (int i = 0; i < 100; i++)
        account_keep(site_above_recursion_200_account, malloc_below(200, 304), 304);
}

OWN_FRAME static void site_below_recursion_200(void)
{
    for (int i = 0; i < 100; i++)
        account_keep(site_below_recursion_200_account, malloc(320), 320);
}

OWN_FRAME static void descend_to_site(int frames)
{
    if (frames == 0)
        site_below_recursion_200();
    else
        descend_to_site(frames - 1);
    NO_TAIL_CALL();
}

/* ---- the plug-in ---- */

static plugin_round_fn *plugin_round;

/* By its full path, beside this program. Profilers that wrap dlopen (heaptrack) lose the caller's
 * RUNPATH, and this program is for comparing them. dlopen_cycle.c relies on the RUNPATH. The
 * plug-in stays open. */
static void open_plugin(void)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    if (length < 0)
        die("/proc/self/exe is not readable");
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, "truth_plugin.so");
    void *plugin = dlopen(path, RTLD_NOW);
    if (plugin == NULL)
        die(dlerror());
    *(void **)&plugin_round = dlsym(plugin, "plugin_round");
    if (plugin_round == NULL)
        die("truth_plugin.so has no plugin_round");
}

OWN_FRAME static void *site_host_for_plugin(void)
{
    void *block = malloc(112);
    account_alloc(site_host_for_plugin_account, block, 112);
    return block;
}

void *host_block_for_plugin(void) { return site_host_for_plugin(); }
void host_frees_plugin_block(void *block) { free(block); }

/* ---- blocks that change threads ---- */

enum { MAX_THREADS = 256 };
static struct kept *to_be_freed_by_next[MAX_THREADS];
static struct kept *to_be_realloced_by_next[MAX_THREADS];

OWN_FRAME static void site_freed_by_other_thread(int thread)
{
    for (int i = 0; i < 300; i++) {
        void *given = malloc(128);
        account_alloc(site_freed_by_other_thread_account, given, 128);
        push(&to_be_freed_by_next[thread], given, 128);
        account_keep(site_freed_by_other_thread_account, malloc(128), 128);
    }
}

OWN_FRAME static void site_realloced_by_other_thread(int thread)
{
    for (int i = 0; i < 100; i++) {
        void *given = malloc(700);
        account_alloc(site_realloced_by_other_thread_account, given, 700);
        push(&to_be_realloced_by_next[thread], given, 700);
    }
}

OWN_FRAME static void site_realloc_in_other_thread(void *block)
{
    block = realloc(block, 1400);
    account_free(site_realloced_by_other_thread_account, 700);
    account_keep(site_realloc_in_other_thread_account, block, 1400);
}

static void take_blocks_of(int thread)
{
    for (struct kept *block = to_be_freed_by_next[thread], *next; block != NULL; block = next) {
        next = block->next;
        account_free(site_freed_by_other_thread_account, 128);
        free(block);
    }
    for (struct kept *block = to_be_realloced_by_next[thread], *next; block != NULL; block = next) {
        next = block->next;
        site_realloc_in_other_thread(block);
    }
}

/* ---- rounds ---- */

static int scale = 1;
static int threads = 4;
static pthread_barrier_t everybody_has_given;

static void thread_round(int thread)
{
    site_malloc_16();
    site_malloc_40();
    site_malloc_1000();
    site_malloc_4096_half_freed();
    site_malloc_200000();
    site_calloc();
    reallocs();
    site_reallocarray();
    site_posix_memalign();
    site_aligned_alloc();
    site_memalign();
    site_valloc();
    site_pvalloc();
    site_strdup();
    site_strndup();
    site_wcsdup();
    getlines();
    site_asprintf();
    site_churn_24();
    site_churn_mixed();
    site_churn_100000();
    site_free_sized();
    site_free_aligned_sized();
    site_inline_helper();
    site_inline_helper_3_deep();
    host_of_inlined_sites();
    site_around_inlined_site();
    site_above_recursion_40();
    site_above_recursion_200();
    descend_to_site(200);
    site_freed_by_other_thread(thread);
    site_realloced_by_other_thread(thread);
    plugin_round();
    cxx_round();
}

static void main_round(void)
{
    site_malloc_8m();
    site_calloc_3m();
    site_posix_memalign_2m();
    site_churn_1m();
}

static void *worker(void *number)
{
    int thread = (int)(size_t)number;
    for (int i = 0; i < scale; i++)
        thread_round(thread);
    pthread_barrier_wait(&everybody_has_given);
    take_blocks_of((thread + 1) % threads);
    return NULL;
}

static void run(void)
{
    pthread_t handles[MAX_THREADS];
    pthread_barrier_init(&everybody_has_given, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&handles[i], NULL, worker, (void *)(size_t)i) != 0)
            die("pthread_create failed");
    for (int i = 0; i < scale; i++)
        main_round();
    for (int i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
}

/* ---- output ---- */

enum run_by { MAIN_ONLY, PER_THREAD };

struct plan {
    const char *site;
    enum run_by run_by;
    size_t alloc_objects, alloc_bytes, inuse_objects, inuse_bytes; /* of one round */
};

#define PLAN(name, who, an, ab, in, ib) [name##_account] = {#name, who, an, ab, in, ib},
static const struct plan plans[ACCOUNTS] = {TRUTH_SITES(PLAN) UNTRUTHED_SITES(PLAN)};

static size_t inuse_objects(const struct account *a) { return a->alloc_objects - a->freed_objects; }
static size_t inuse_bytes(const struct account *a) { return a->alloc_bytes - a->freed_bytes; }

static void print_truth(void)
{
    for (int site = 0; site < ACCOUNTS; site++) {
        const struct account *a = &accounts[site];
        printf("%s %s %zu %zu %zu %zu\n", site < FIRST_UNTRUTHED ? "truth" : "untruthed", plans[site].site,
               a->alloc_objects, a->alloc_bytes, inuse_objects(a), inuse_bytes(a));
    }
}

/* ---- --check ---- */

static int failures;

static void check(const char *site, const char *what, size_t got, size_t expected)
{
    if (got == expected)
        return;
    failures++;
    printf("FAIL %s %s: %zu (expected %zu)\n", site, what, got, expected);
}

static void check_against_plan(enum site_account site)
{
    const struct account *a = &accounts[site];
    const struct plan *p = &plans[site];
    size_t rounds = (size_t)scale * (p->run_by == PER_THREAD ? (size_t)threads : 1);
    check(p->site, "allocated objects", a->alloc_objects, rounds * p->alloc_objects);
    check(p->site, "allocated bytes", a->alloc_bytes, rounds * p->alloc_bytes);
    check(p->site, "objects in use", inuse_objects(a), rounds * p->inuse_objects);
    check(p->site, "bytes in use", inuse_bytes(a), rounds * p->inuse_bytes);
}

/* Sites of C++ containers keep nothing in the list: for these the account and the plan suffice. */
static void check_against_kept_list(enum site_account site)
{
    const struct account *a = &accounts[site];
    size_t objects = 0, bytes = 0;
    for (struct kept *block = a->kept; block != NULL; block = block->next) {
        objects++;
        bytes += block->size;
        if (malloc_usable_size(block) < block->size)
            check(plans[site].site, "usable size", malloc_usable_size(block), block->size);
    }
    if (objects == 0)
        return;
    check(plans[site].site, "objects kept", objects, inuse_objects(a));
    check(plans[site].site, "bytes kept", bytes, inuse_bytes(a));
}

static void check_totals(void)
{
    size_t objects = 0, bytes = 0;
    for (int site = 0; site < ACCOUNTS; site++) {
        check_against_plan(site);
        check_against_kept_list(site);
        objects += accounts[site].alloc_objects;
        bytes += accounts[site].alloc_bytes;
    }
    printf("%s account: %d sites, %zu objects, %zu bytes allocated\n", failures ? "FAIL" : "ok", (int)ACCOUNTS, objects, bytes);
}

/* ---- main ---- */

static int positive(const char *text)
{
    int number = text == NULL ? 0 : atoi(text);
    if (number < 1)
        die("usage: truth [--scale N] [--threads N] [--check]");
    return number;
}

int main(int argc, char **argv)
{
    int wants_check = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--scale") == 0)
            scale = positive(argv[++i]);
        else if (strcmp(argv[i], "--threads") == 0)
            threads = positive(argv[++i]);
        else if (strcmp(argv[i], "--check") == 0)
            wants_check = 1;
        else
            positive(NULL);
    }
    if (threads > MAX_THREADS)
        die("at most 256 threads");

    memset(text_of_300, 'x', 300);
    wmemset(wide_text_of_20, L'x', 20);
    find_sized_frees();
    open_plugin();
    run();
    print_truth();
    if (wants_check)
        check_totals();
    return failures != 0;
}
