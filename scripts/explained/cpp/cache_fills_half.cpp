// A cache of rendered pages that is full at half of the run, and turns over then.
//
// expect: cache render
#include "../pace.h"
#include <deque>
#include <vector>

static std::deque<std::vector<char>> pages;

SITE static void render(bool is_full) {
    pages.emplace_back(25000);
    fill(pages.back().data(), 25000);
    if (is_full)
        pages.pop_front();
}

int main(int argc, char **argv) {
    bool is_full = false;
    begin(argc, argv);
    while (going()) {
        is_full = is_full || part() > 0.5;
        for (int i = 0; i < 5; i++)
            render(is_full);
        rest(50);
    }
    printf("%zu\n", pages.size());
}
