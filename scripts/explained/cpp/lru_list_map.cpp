// A least-recently-used cache of a list and a map, with a limit on its entries.
//
// expect: cache insert; churn|nothing fetch
#include "../pace.h"
#include <list>
#include <string>
#include <unordered_map>

using Entry = std::pair<unsigned, std::string>;
static std::list<Entry> entries;
static std::unordered_map<unsigned, std::list<Entry>::iterator> places;

SITE static std::string fetch(unsigned key) {
    std::string value(3000 + key % 9000, 'v');
    fill(value.data(), value.size());
    return value;
}

SITE static void insert(unsigned key, const std::string &value) {
    entries.emplace_front(key, value);
    places[key] = entries.begin();
    if (entries.size() > 5000) {
        places.erase(entries.back().first);
        entries.pop_back();
    }
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 50; i++) {
            unsigned key = chance(20000);
            auto found = places.find(key);
            if (found != places.end())
                entries.splice(entries.begin(), entries, found->second);
            else
                insert(key, fetch(key));
        }
        rest(50);
    }
    printf("%zu\n", entries.size());
}
