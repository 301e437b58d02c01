/*
 * An interpreter's heap: objects pile up until a collection frees nearly all.
 *
 * expect: periodic new_object
 */
#include "../pace.h"

struct object {
    struct object *next;
    int survives;
    char fields[1500];
};

static struct object *young;
static unsigned count;

SITE static void new_object(void) {
    struct object *object = fill(malloc(sizeof *object), sizeof *object);
    object->survives = chance(30) == 0;
    object->next = young;
    young = object;
    count++;
}

static void collect(void) {
    struct object *kept = NULL;
    count = 0;
    while (young) {
        struct object *object = young;
        young = object->next;
        if (object->survives) {
            object->survives = 0;
            object->next = kept;
            kept = object;
            count++;
        } else {
            free(object);
        }
    }
    young = kept;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 140; i++)
            new_object();
        if (count > 20000)
            collect();
        rest(50);
    }
}
