// Load that rises and falls like days: the memory of open requests follows it.
//
// expect: periodic open_request
#include "../pace.h"
#include <cmath>
#include <deque>
#include <memory>
#include <vector>

static std::deque<std::vector<char>> requests;

SITE static void open_request() {
    requests.emplace_back(18000);
    fill(requests.back().data(), 18000);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        double load = 0.5 - 0.5 * std::cos(seconds() * 2 * 3.14159 / 15);
        size_t wanted = 100 + static_cast<size_t>(2400 * load);
        // Some requests end in each step, whatever the load.
        for (int i = 0; i < 10 && !requests.empty(); i++)
            requests.pop_front();
        while (requests.size() > wanted)
            requests.pop_front();
        while (requests.size() < wanted)
            open_request();
        rest(50);
    }
}
