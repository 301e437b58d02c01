// A cache that forgets its oldest pages, in a program whose recording is stopped three times.
//
// expect: cache|nothing render; nothing log_line; one-time load_templates
#include "../../../preload/include/heapprof.h"
#include "../pace.h"
#include <deque>
#include <string>
#include <vector>

static std::deque<std::vector<char>> pages;
static std::vector<std::string> templates;

SITE static void render() {
    pages.emplace_back(6000 + chance(9000));
    fill(pages.back().data(), pages.back().size());
    if (pages.size() > 1500)
        pages.pop_front();
}

SITE static std::string log_line(unsigned number) {
    return std::string(3000, 'x') + std::to_string(number);
}

SITE static void load_templates() {
    for (int i = 0; i < 200; i++)
        templates.emplace_back(40000, 't');
}

int main(int argc, char **argv) {
    std::deque<std::string> lines;
    bool is_stopped = false;
    begin(argc, argv);
    load_templates();
    for (unsigned tick = 0; going(); tick++) {
        bool is_wanted = part() > 0.1 && (int)(part() * 10) % 3 == 0;
        if (is_wanted != is_stopped) {
            if (is_wanted)
                HEAPPROF_STOP();
            else
                HEAPPROF_START(nullptr);
            is_stopped = is_wanted;
        }
        for (int i = 0; i < 6; i++)
            render();
        lines.push_back(log_line(tick));
        if (lines.size() > 500)
            lines.pop_front();
        rest(20);
    }
    printf("%zu %zu\n", templates.size(), lines.size());
}
