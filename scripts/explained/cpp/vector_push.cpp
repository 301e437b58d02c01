// Measured points are pushed to a vector, for a chart that shows the last hundred.
//
// expect: growing block measure; one-time load_map
#include "../pace.h"
#include <vector>

struct Point {
    double time, value, error, weight;
};

static std::vector<Point> points;
static std::vector<std::vector<char>> tiles;

SITE static void load_map() {
    for (int i = 0; i < 60; i++) {
        tiles.emplace_back(200000);
        fill(tiles.back().data(), tiles.back().size());
    }
}

SITE static void measure() {
    points.push_back({seconds(), static_cast<double>(chance(1000)), 0.5, 1.0});
}

int main(int argc, char **argv) {
    begin(argc, argv);
    tiles.reserve(60);
    load_map();
    while (going()) {
        for (int i = 0; i < 1500; i++)
            measure();
        rest(60);
    }
    printf("%zu\n", points.size());
}
