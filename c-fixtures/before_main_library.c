/* Library of before_main.c whose constructor allocates. */
#include "frames.h"

#include <stdlib.h>

void *before_main_library_block(void);

static void *block;

__attribute__((constructor)) static void library_constructor(void) { block = malloc(29005); }

void *before_main_library_block(void) { return block; }
