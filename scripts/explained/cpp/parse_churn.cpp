// A parser that makes a tree for each document, reads it, and drops it.
//
// expect: churn parse_node; one-time load_schema; nothing *
#include "../pace.h"
#include <memory>
#include <vector>

struct Node {
    std::vector<std::unique_ptr<Node>> children;
    char text[400];
};

static std::vector<std::unique_ptr<Node>> schema;

SITE static void load_schema() {
    for (int i = 0; i < 30000; i++) {
        schema.push_back(std::make_unique<Node>());
        fill(schema.back()->text, 400);
    }
}

SITE static std::unique_ptr<Node> parse_node(int depth) {
    auto node = std::make_unique<Node>();
    fill(node->text, sizeof node->text);
    for (int i = 0; depth > 0 && i < 4; i++)
        node->children.push_back(parse_node(depth - 1));
    return node;
}

int main(int argc, char **argv) {
    size_t sum = 0;
    begin(argc, argv);
    schema.reserve(30000);
    load_schema();
    while (going()) {
        for (int i = 0; i < 10; i++)
            sum += parse_node(5)->children.size();
        rest(80);
    }
    printf("%zu\n", sum);
}
