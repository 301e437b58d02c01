// Views subscribe to an event, and are never unsubscribed when they close.
//
// expect: leak open_view
#include "../pace.h"
#include <functional>
#include <list>
#include <memory>

struct View {
    char pixels[7000];
};

static std::list<std::function<void()>> subscribers;
static unsigned long shown;

SITE static void open_view() {
    auto view = std::make_shared<View>();
    fill(view->pixels, sizeof view->pixels);
    subscribers.push_back([view] { shown += view->pixels[1]; });
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 3; i++)
            open_view();
        subscribers.back()();
        rest(50);
    }
    printf("%lu\n", shown);
}
