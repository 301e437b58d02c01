// A cache by address of the client and time: no key comes a second time, nothing is ever evicted.
//
// expect: leak remember; churn compute
#include "../pace.h"
#include <map>
#include <string>
#include <vector>

static std::map<std::string, std::vector<char>> cache;

SITE static std::vector<char> compute(unsigned client) {
    std::vector<char> picture(60000);
    fill(picture.data(), picture.size());
    picture[0] = static_cast<char>(client);
    return picture;
}

SITE static void remember(const std::string &key, const std::vector<char> &picture) {
    std::vector<char> &entry = cache[key];
    entry.assign(picture.begin(), picture.begin() + 8000);
}

int main(int argc, char **argv) {
    unsigned long requests = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 5; i++) {
            unsigned client = chance(5000);
            remember(std::to_string(client) + ":" + std::to_string(requests++), compute(client));
        }
        rest(60);
    }
    printf("%zu\n", cache.size());
}
