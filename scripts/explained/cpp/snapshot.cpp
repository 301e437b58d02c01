// A store that copies its state for a snapshot, writes the copy, and drops it.
//
// expect: periodic copy_state; one-time load_state
#include "../pace.h"
#include <vector>

using State = std::vector<std::vector<char>>;

SITE static State load_state() {
    State state;
    state.reserve(400);
    for (int i = 0; i < 400; i++) {
        state.emplace_back(60000);
        fill(state.back().data(), 60000);
    }
    return state;
}

SITE static State copy_state(const State &state) {
    State copy = state;
    fill(copy[0].data(), copy[0].size());
    return copy;
}

int main(int argc, char **argv) {
    double next = 4;
    begin(argc, argv);
    State state = load_state();
    while (going()) {
        if (seconds() > next) {
            State copy = copy_state(state);
            for (size_t i = 0; i < copy.size(); i += 4)
                state[i][0] = copy[i][1];
            for (int i = 0; i < 50 && going(); i++)
                rest(80);
            next += 11;
        }
        state[chance(400)][chance(60000)]++;
        rest(50);
    }
}
