// Chat rooms: messages are bounded in each room, but rooms are never closed.
//
// expect: leak post; one-time load_emoji; leak|nothing main
#include "../pace.h"
#include <deque>
#include <string>
#include <vector>

static std::vector<std::vector<char>> emoji;
static std::deque<std::deque<std::string>> rooms;

SITE static void load_emoji() {
    emoji.reserve(30);
    for (int i = 0; i < 30; i++) {
        emoji.emplace_back(300000);
        fill(emoji.back().data(), 300000);
    }
}

SITE static void post(std::deque<std::string> &room) {
    room.emplace_back(800 + chance(1500), 'm');
    if (room.size() > 20)
        room.pop_front();
}

int main(int argc, char **argv) {
    begin(argc, argv);
    load_emoji();
    while (going()) {
        rooms.emplace_back();
        for (int i = 0; i < 15; i++)
            post(rooms.back());
        for (int i = 0; i < 5; i++)
            post(rooms[chance((unsigned)rooms.size())]);
        rest(50);
    }
    printf("%zu\n", rooms.size());
}
