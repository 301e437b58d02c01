// A service with a bounded cache, a list of sessions that only grows, and a nightly report. It is
// the example of docs/guide.md. Build: g++ -O2 -g -o server guide-server.cpp -pthread
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

using Clock = std::chrono::steady_clock;

struct Page { int number; std::string body; };

class PageCache {
  std::list<Page> pages;
  std::unordered_map<int, std::list<Page>::iterator> index;
  std::mutex lock;
  static constexpr size_t most = 4000;

 public:
  Page get(int number) {
    std::lock_guard guard(lock);
    auto found = index.find(number);
    if (found == index.end()) return insert(number);
    pages.splice(pages.begin(), pages, found->second);
    return *found->second;
  }
  __attribute__((noinline)) Page insert(int number) {
    pages.emplace_front();
    pages.front().number = number;
    pages.front().body.assign(8000, 'x');
    index[number] = pages.begin();
    if (pages.size() > most) {
      index.erase(pages.back().number);
      pages.pop_back();
    }
    return pages.front();
  }
};

struct Session { std::string user, token; std::vector<int> clicks; };

class Sessions {
  std::vector<Session *> all;
  std::mutex lock;

 public:
  __attribute__((noinline)) void open(int user) {
    auto *session = new Session;
    session->user = "user-" + std::to_string(user) + "@example.org";
    session->token.assign(200, 't');
    session->clicks.reserve(100);
    std::lock_guard guard(lock);
    all.push_back(session);
#ifdef FIXED
    if (all.size() > 1000) { delete all.front(); all.erase(all.begin()); }
#endif
  }
};

static PageCache cache;
static Sessions sessions;

__attribute__((noinline)) static std::string render(const Page &page, int user) {
  std::string out = "<html>";
  for (int i = 0; i < 20; i++) out += "<li>" + std::to_string(user * i) + " of a rather long line of text</li>";
  return out + page.body.substr(0, 100);
}

static void serve(int number) {
  int user = number * 7919 % 100000;
  Page page = cache.get(user % 12000);
  volatile size_t length = render(page, user).size();
  (void)length;
  if (number % 4 == 0) sessions.open(user);
}

__attribute__((noinline)) static void nightly_report() {
  std::vector<std::vector<std::string>> table;
  for (int row = 0; row < 20000; row++) {
    table.emplace_back();
    for (int column = 0; column < 40; column++) table.back().push_back("a cell that is longer than a small string " + std::to_string(column));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 20;
  auto start = Clock::now();
  std::vector<std::thread> workers;
  for (int w = 0; w < 2; w++)
    workers.emplace_back([=] {
      for (int n = w;; n += 2) {
        std::chrono::duration<double> past = Clock::now() - start;
        if (past.count() > seconds) return;
        serve(n);
        if (n % 20 < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds * 0.4));
  nightly_report();
  for (auto &worker : workers) worker.join();
  puts("done");
  _Exit(0);
}
