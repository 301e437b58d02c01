// The program whose report scripts/report-page looks at: a list that only grows, a cache that stays
// level, a burst of a second, temporary texts in a second thread, and a mapped pool.
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

#define OUT_OF_LINE __attribute__((noinline))

struct Session {
  char text[1000];
};

static std::vector<Session *> sessions;
// Never destroyed: a cache that is emptied as the program ends is none that is level.
static auto &cache = *new std::deque<std::string>;
static std::vector<std::string> pages_of_report;
static volatile size_t sink;

OUT_OF_LINE void open_session() {
  auto *session = new Session;
  memset(session->text, 1, sizeof session->text);
  sessions.push_back(session);
}

OUT_OF_LINE void fill_cache() {
  cache.emplace_back(20000, 'c');
  if (cache.size() > 200) cache.pop_front();
}

OUT_OF_LINE void make_report() { pages_of_report.emplace_back(40000, 'r'); }

OUT_OF_LINE void parse_request(size_t size) {
  std::string text(size, 'p');
  sink = text.size();
}

OUT_OF_LINE void *map_pool(size_t size) {
  void *pool = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(pool, 1, size / 2);
  return pool;
}

static void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

static std::atomic<bool> is_done;

static void work() {
  pthread_setname_np(pthread_self(), "worker");
  for (size_t n = 0; !is_done; n++) {
    parse_request(2000 + n % 1000);
    parse_request(3000 + n % 1000);
    rest();
  }
}

// Steps and not seconds, so that a busy machine changes the times only.
int main(int argc, char **argv) {
  int steps = argc > 1 ? atoi(argv[1]) : 3000;
  std::thread worker(work);
  map_pool(8 << 20);
  for (int step = 0; step < steps; step++) {
    for (int n = 0; n < 4; n++) open_session();
    fill_cache();
    bool is_burst = step > steps * 0.45 && step < steps * 0.6;
    if (is_burst && pages_of_report.size() < 400) make_report();
    if (!is_burst) pages_of_report.clear();
    rest();
  }
  is_done = true;
  worker.join();
  return 0;
}
