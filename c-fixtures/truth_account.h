/* The account of the program with known truth: the exact allocations of every site.
 *
 *   site        a function named site_*; a block belongs to the innermost frame of that name
 *   account     objects and requested bytes: allocated since the start, and freed
 *   kept list   every block in use (except those inside C++ containers) hangs in its site's list by
 *               its own first 16 bytes, so it stays reachable and costs no memory of its own
 *   plan        the table below: the expected result of one round of each site. It is written by
 *               hand, apart from the code, so that `truth --check` compares two sources.
 *
 * One round is run `scale` times by every thread (PER_THREAD) or by main alone (MAIN_ONLY).
 */
#ifndef TRUTH_ACCOUNT_H
#define TRUTH_ACCOUNT_H

#include <stddef.h>

#include <features.h>

/* realloc(p, 0) is only a free with glibc, and a free and an empty block with musl. */
#ifdef __GLIBC__
#define BLOCKS_OF_ZERO 0
#else
#define BLOCKS_OF_ZERO 200
#endif

#define KIB 1024ull
#define MIB (1024ull * KIB)

/*      site                        run by      allocated: objects, bytes     in use: the same */
#define TRUTH_SITES(X) \
    X(site_malloc_16,               PER_THREAD, 2000, 2000 * 16,                     2000, 2000 * 16) \
    X(site_malloc_40,               PER_THREAD, 2000, 2000 * 40,                     2000, 2000 * 40) \
    X(site_malloc_1000,             PER_THREAD, 100, 100 * 1000,                     100, 100 * 1000) \
    X(site_malloc_4096_half_freed,  PER_THREAD, 60, 60 * 4096,                       30, 30 * 4096) \
    X(site_malloc_200000,           PER_THREAD, 1, 200000,                           1, 200000) \
    X(site_malloc_8m,               MAIN_ONLY,  1, 8 * MIB,                          1, 8 * MIB) \
    X(site_calloc,                  PER_THREAD, 1000, 1000 * 3 * 24,                 1000, 1000 * 3 * 24) \
    X(site_calloc_3m,               MAIN_ONLY,  1, 3 * MIB,                          1, 3 * MIB) \
    X(site_realloc_from_null,       PER_THREAD, 300, 300 * 300,                      300, 300 * 300) \
    X(site_realloc_grow_origin,     PER_THREAD, 10, 10 * 64,                         0, 0) \
    X(site_realloc_grow,            PER_THREAD, 20, 10 * (4096 + 20000),             10, 10 * 20000) \
    X(site_realloc_shrink_origin,   PER_THREAD, 20, 20 * 10000,                      0, 0) \
    X(site_realloc_shrink,          PER_THREAD, 20, 20 * 500,                        20, 20 * 500) \
    X(site_realloc_in_place_origin, PER_THREAD, 100, 100 * 990,                      0, 0) \
    X(site_realloc_in_place,        PER_THREAD, 100, 100 * 1000,                     100, 100 * 1000) \
    X(site_realloc_moved_origin,    PER_THREAD, 100, 100 * 100,                      0, 0) \
    X(site_realloc_moved,           PER_THREAD, 100, 100 * 2000,                     100, 100 * 2000) \
    X(site_realloc_to_zero_origin,  PER_THREAD, 200, 200 * 333,                      0, 0) \
    X(site_realloc_to_zero,         PER_THREAD, BLOCKS_OF_ZERO, 0,                   0, 0) \
    X(site_reallocarray,            PER_THREAD, 200, 100 * (10 * 50 + 20 * 50),      100, 100 * 20 * 50) \
    X(site_posix_memalign,          PER_THREAD, 200, 200 * 500,                      200, 200 * 500) \
    X(site_posix_memalign_2m,       MAIN_ONLY,  1, 2 * MIB,                          1, 2 * MIB) \
    X(site_aligned_alloc,           PER_THREAD, 100, 100 * 1024,                     100, 100 * 1024) \
    X(site_memalign,                PER_THREAD, 20, 20 * 3000,                       20, 20 * 3000) \
    X(site_valloc,                  PER_THREAD, 20, 20 * 5000,                       20, 20 * 5000) \
    X(site_pvalloc,                 PER_THREAD, 20, 20 * 5000,                       20, 20 * 5000) \
    X(site_strdup,                  PER_THREAD, 500, 500 * 100,                      500, 500 * 100) \
    X(site_strndup,                 PER_THREAD, 500, 500 * 51,                       500, 500 * 51) \
    X(site_wcsdup,                  PER_THREAD, 200, 200 * 21 * 4,                   200, 200 * 21 * 4) \
    X(site_churn_24,                PER_THREAD, 5000, 5000 * 24,                     0, 0) \
    X(site_churn_mixed,             PER_THREAD, 900, 100 * (16 + 32 + 64 + 128 + 256 + 512 + 1024 + 2048 + 4096), 0, 0) \
    X(site_churn_100000,            PER_THREAD, 4, 4 * 100000,                       0, 0) \
    X(site_churn_1m,                MAIN_ONLY,  4, 4 * MIB,                          0, 0) \
    X(site_freed_by_other_thread,   PER_THREAD, 600, 600 * 128,                      300, 300 * 128) \
    X(site_realloced_by_other_thread, PER_THREAD, 100, 100 * 700,                    0, 0) \
    X(site_realloc_in_other_thread, PER_THREAD, 100, 100 * 1400,                     100, 100 * 1400) \
    X(site_free_sized,              PER_THREAD, 500, 500 * 96,                       0, 0) \
    X(site_free_aligned_sized,      PER_THREAD, 200, 200 * 384,                      0, 0) \
    X(site_inline_helper,           PER_THREAD, 500, 500 * 160,                      500, 500 * 160) \
    X(site_inline_helper_3_deep,    PER_THREAD, 500, 500 * 176,                      500, 500 * 176) \
    X(site_inlined_one,             PER_THREAD, 400, 400 * 208,                      400, 400 * 208) \
    X(site_inlined_two,             PER_THREAD, 300, 300 * 224,                      300, 300 * 224) \
    X(site_around_inlined_site,     PER_THREAD, 200, 200 * 240,                      200, 200 * 240) \
    X(site_inlined_within_site,     PER_THREAD, 200, 200 * 272,                      200, 200 * 272) \
    X(site_above_recursion_40,      PER_THREAD, 200, 200 * 288,                      200, 200 * 288) \
    X(site_above_recursion_200,     PER_THREAD, 100, 100 * 304,                      100, 100 * 304) \
    X(site_below_recursion_200,     PER_THREAD, 100, 100 * 320,                      100, 100 * 320) \
    X(site_plugin_malloc,           PER_THREAD, 300, 300 * 352,                      300, 300 * 352) \
    X(site_plugin_churn,            PER_THREAD, 300, 300 * 416,                      0, 0) \
    X(site_plugin_freed_by_host,    PER_THREAD, 200, 200 * 368,                      0, 0) \
    X(site_host_for_plugin,         PER_THREAD, 200, 200 * 112,                      0, 0) \
    X(site_plugin_realloc,          PER_THREAD, 200, 200 * 1120,                     200, 200 * 1120) \
    X(site_new,                     PER_THREAD, 1000, 1000 * 48,                     1000, 1000 * 48) \
    X(site_new_array,               PER_THREAD, 300, 300 * 300,                      300, 300 * 300) \
    X(site_new_aligned,             PER_THREAD, 200, 200 * 192,                      200, 200 * 192) \
    X(site_new_array_aligned,       PER_THREAD, 100, 100 * 3 * 192,                  100, 100 * 3 * 192) \
    X(site_new_nothrow,             PER_THREAD, 1000, 1000 * 48,                     1000, 1000 * 48) \
    X(site_new_array_nothrow,       PER_THREAD, 300, 300 * 310,                      300, 300 * 310) \
    X(site_new_then_sized_delete,   PER_THREAD, 1000, 1000 * 48,                     0, 0) \
    X(site_new_then_array_delete,   PER_THREAD, 300, 300 * 330,                      0, 0) \
    X(site_new_then_aligned_delete, PER_THREAD, 300, 300 * 192,                      0, 0) \
    X(site_vector_reserve,          PER_THREAD, 50, 50 * 250 * 8,                    50, 50 * 250 * 8) \
    X(site_vector_churn,            PER_THREAD, 100, 100 * 1000,                     0, 0) \
    X(site_string,                  PER_THREAD, 100, 100 * 601,                      100, 100 * 601) \
    X(site_string_short,            PER_THREAD, 0, 0,                                0, 0) \
    X(site_make_unique_array,       PER_THREAD, 50, 50 * 700,                        50, 50 * 700) \
    X(site_list_nodes,              PER_THREAD, 400, 400 * 64,                       400, 400 * 64) \
    X(site_map_nodes,               PER_THREAD, 400, 400 * 48,                       300, 300 * 48) \
    X(site_allocate_shared,         PER_THREAD, 100, 100 * 144,                      100, 100 * 144)

/* Sites whose requested sizes depend on libc. The counts here are the blocks in use and their least
 * size; the library may allocate and free more on the way. */
#define UNTRUTHED_SITES(X) \
    X(site_getline,                 PER_THREAD, 20, 20 * 301,                        20, 20 * 301) \
    X(site_asprintf,                PER_THREAD, 50, 50 * 401,                        50, 50 * 401) \
    X(site_make_shared,             PER_THREAD, 100, 100 * 128,                      100, 100 * 128)

#define SITE_NAME(name, ...) name##_account,
enum site_account { TRUTH_SITES(SITE_NAME) FIRST_UNTRUTHED, BEFORE_UNTRUTHED = FIRST_UNTRUTHED - 1,
                    UNTRUTHED_SITES(SITE_NAME) ACCOUNTS };
#undef SITE_NAME

/* The first 16 bytes of every kept block, hence the smallest block of this program. */
struct kept {
    struct kept *next;
    size_t size;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Accounts `size` requested bytes of a site. A null block ends the program: its promise cannot be
 * kept. */
void account_alloc(enum site_account site, void *block, size_t size);

/* Accounts that a block of `site` is about to be freed. */
void account_free(enum site_account site, size_t size);

/* account_alloc, and the block stays in use until the end. */
void account_keep(enum site_account site, void *block, size_t size);

/* One round of all sites of truth_cxx.cpp. */
void cxx_round(void);

/* One round of all sites of truth_plugin.c, found by dlsym. */
typedef void plugin_round_fn(void);

/* For the plug-in: a block of 112 bytes of site_host_for_plugin, and the end of one of its own. */
void *host_block_for_plugin(void);
void host_frees_plugin_block(void *block);

#ifdef __cplusplus
}
#endif
#endif
