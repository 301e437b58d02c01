/*
 * A tree of tiny nodes that only grows: a prefix table of words that are never removed.
 *
 * expect: leak insert_word
 */
#include "../pace.h"

struct node {
    struct node *left, *right;
    unsigned word;
};

static struct node *root;

SITE static void insert_word(unsigned word) {
    struct node **place = &root;
    while (*place)
        place = (*place)->word > word ? &(*place)->left : &(*place)->right;
    struct node *node = fill(malloc(sizeof *node), sizeof *node);
    node->left = node->right = NULL;
    node->word = word;
    *place = node;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 500; i++)
            insert_word(chance(1u << 30));
        rest(50);
    }
}
