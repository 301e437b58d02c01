/* Auditor, for LD_AUDIT: it allocates at each event of the loader, in a name space and with a
 * malloc of its own. */
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <stdlib.h>

static void *volatile last;

static void allocates(void)
{
    free(last);
    last = malloc(1000);
}

unsigned la_version(unsigned version)
{
    allocates();
    return version;
}

unsigned la_objopen(struct link_map *map, Lmid_t name_space, uintptr_t *cookie)
{
    (void)map, (void)name_space, (void)cookie;
    allocates();
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags, const char *name)
{
    (void)index, (void)from, (void)to, (void)flags, (void)name;
    allocates();
    return symbol->st_value;
}
