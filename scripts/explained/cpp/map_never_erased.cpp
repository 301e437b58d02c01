// Every login adds an entry to a map; a logout only marks it.
//
// expect: leak login; churn|nothing check_password
#include "../pace.h"
#include <string>
#include <unordered_map>

struct Login {
    bool active;
    char token[1500];
};

static std::unordered_map<unsigned, Login> logins;

SITE static void login(unsigned user) {
    Login &login = logins[user];
    login.active = true;
    fill(login.token, sizeof login.token);
}

SITE static bool check_password(unsigned user) {
    std::string salted(2000, 'x');
    fill(salted.data(), salted.size());
    return salted[user % 2000] == 7;
}

int main(int argc, char **argv) {
    unsigned user = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 15; i++)
            if (check_password(user))
                login(user++);
        logins[user / 2].active = false;
        rest(50);
    }
    printf("%zu\n", logins.size());
}
