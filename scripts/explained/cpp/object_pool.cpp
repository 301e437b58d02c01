// A pool of parsers that are used again: it grows to what the busiest second needs, and stays.
//
// expect: one-time|nothing make_parser; nothing *
#include "../pace.h"
#include <memory>
#include <vector>

struct Parser {
    char stack[60000];
};

static std::vector<std::unique_ptr<Parser>> idle, busy;

SITE static std::unique_ptr<Parser> make_parser() {
    auto parser = std::make_unique<Parser>();
    fill(parser->stack, sizeof parser->stack);
    return parser;
}

static void take() {
    if (idle.empty())
        idle.push_back(make_parser());
    busy.push_back(std::move(idle.back()));
    idle.pop_back();
}

int main(int argc, char **argv) {
    begin(argc, argv);
    idle.reserve(2000), busy.reserve(2000);
    while (going()) {
        int wanted = 300 + (int)chance(seconds() < 5 ? 100 : 300);
        for (int i = 0; i < wanted; i++)
            take();
        rest(100);
        while (!busy.empty()) {
            idle.push_back(std::move(busy.back()));
            busy.pop_back();
        }
        rest(100);
    }
}
