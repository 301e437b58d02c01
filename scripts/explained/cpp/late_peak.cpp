// A report near the end of the run takes much memory for some seconds.
//
// expect: burst make_report; one-time load_accounts
#include "../pace.h"
#include <memory>
#include <string>
#include <vector>

SITE static std::vector<std::string> load_accounts() {
    std::vector<std::string> accounts;
    accounts.reserve(1000);
    for (int i = 0; i < 1000; i++)
        accounts.emplace_back(15000, 'a');
    return accounts;
}

SITE static std::vector<std::string> make_report(const std::vector<std::string> &accounts) {
    std::vector<std::string> pages;
    pages.reserve(accounts.size());
    for (const std::string &account : accounts)
        pages.push_back(account + account + account + account);
    return pages;
}

int main(int argc, char **argv) {
    bool is_done = false;
    size_t sum = 0;
    begin(argc, argv);
    auto accounts = load_accounts();
    while (going()) {
        if (!is_done && part() > 0.85) {
            auto pages = make_report(accounts);
            for (int i = 0; i < 30 && part() < 0.9; i++)
                rest(100);
            sum += pages.size();
            is_done = true;
        }
        rest(50);
    }
    printf("%zu\n", sum);
}
