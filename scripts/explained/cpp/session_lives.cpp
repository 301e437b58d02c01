// Sessions with very different lives, as many coming as going.
//
// expect: cache|nothing log_in; cache|nothing *
#include "../pace.h"
#include <map>
#include <memory>

struct Session {
    char state[11000];
};

static std::multimap<double, std::unique_ptr<Session>> sessions;

SITE static void log_in(double stays) {
    auto session = std::make_unique<Session>();
    fill(session->state, sizeof session->state);
    sessions.emplace(seconds() + stays, std::move(session));
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 8; i++)
            log_in(chance(10) == 0 ? 15 : 0.2 + chance(50) / 10.0);
        while (!sessions.empty() && sessions.begin()->first < seconds())
            sessions.erase(sessions.begin());
        rest(50);
    }
    printf("%zu\n", sessions.size());
}
