// Each edit publishes a new version, and the history of versions keeps them all.
//
// expect: leak new_version
#include "../pace.h"
#include <list>
#include <memory>
#include <vector>

using Version = std::vector<char>;
static std::list<std::shared_ptr<Version>> history;

SITE static void new_version() {
    size_t size = 1000000 + chance(1000000);
    auto version = std::make_shared<Version>(size);
    fill(version->data(), size);
    history.push_back(std::move(version));
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        new_version();
        rest(1500 + (int)chance(1000));
    }
    printf("%zu\n", history.size());
}
