// Routes are published as a new table every two seconds; the old table goes with its last reader.
//
// expect: cache|periodic|churn|nothing publish
#include "../pace.h"
#include <memory>
#include <vector>

using Table = std::vector<std::vector<char>>;
static std::shared_ptr<const Table> current;

SITE static void publish() {
    auto table = std::make_shared<Table>();
    table->reserve(500);
    for (int i = 0; i < 500; i++) {
        table->emplace_back(20000 + chance(20000));
        fill(table->back().data(), table->back().size());
    }
    current = table;
}

int main(int argc, char **argv) {
    std::vector<std::shared_ptr<const Table>> readers(20);
    double next = 0;
    begin(argc, argv);
    while (going()) {
        if (seconds() > next) {
            publish();
            next += 2;
        }
        readers[chance(20)] = current;
        rest(40);
    }
}
