// Counters by label, where the label has the number of the request in it; a small leak.
//
// expect: leak count; cache keep_recent
#include "../pace.h"
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

struct Counter {
    unsigned long value, buckets[24];
};

static std::unordered_map<std::string, Counter> counters;
static std::deque<std::vector<char>> recent;

SITE static void count(const std::string &label) {
    counters[label].value++;
}

SITE static void keep_recent() {
    recent.emplace_back(10000);
    fill(recent.back().data(), 10000);
    if (recent.size() > 3000)
        recent.pop_front();
}

int main(int argc, char **argv) {
    unsigned request = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 20; i++) {
            count("requests{path=\"/items\",id=\"" + std::to_string(request++) + "\"}");
            keep_recent();
        }
        rest(50);
    }
    printf("%zu\n", counters.size());
}
