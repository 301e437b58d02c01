/* The dlopened part of the program with known truth (truth.c).
 *
 * Situation: a library loaded at run time has its own sites, reallocs a block of its host, and its
 * host frees one of its blocks.
 * A correct profiler names these sites like any other, although the library did not exist at start.
 * If it is wrong: the module list is never refreshed, or frames of late modules do not unwind.
 */
#define _GNU_SOURCE
#include "truth_account.h"
#include "frames.h"

#include <stdlib.h>

OWN_FRAME static void site_plugin_malloc(void)
{
    for (int i = 0; i < 300; i++)
        account_keep(site_plugin_malloc_account, malloc(352), 352);
}

OWN_FRAME static void site_plugin_churn(void)
{
    for (int i = 0; i < 300; i++) {
        void *block = escapes(malloc(416));
        account_alloc(site_plugin_churn_account, block, 416);
        account_free(site_plugin_churn_account, 416);
        free(block);
    }
}

OWN_FRAME static void *site_plugin_freed_by_host(void)
{
    void *block = malloc(368);
    account_alloc(site_plugin_freed_by_host_account, block, 368);
    return block;
}

OWN_FRAME static void site_plugin_realloc(void *block_of_host)
{
    void *block = realloc(block_of_host, 1120);
    account_free(site_host_for_plugin_account, 112);
    account_keep(site_plugin_realloc_account, block, 1120);
}

plugin_round_fn plugin_round;

void plugin_round(void)
{
    site_plugin_malloc();
    site_plugin_churn();
    for (int i = 0; i < 200; i++) {
        host_frees_plugin_block(site_plugin_freed_by_host());
        account_free(site_plugin_freed_by_host_account, 368);
        site_plugin_realloc(host_block_for_plugin());
    }
}
