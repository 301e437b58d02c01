# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# Templates of the standard library.

packages=(g++)

prepare() {
  local i
  {
    printf '#include <algorithm>\n#include <map>\n#include <memory>\n#include <string>\n#include <vector>\n'
    printf 'template <int N> struct Shop {\n  std::map<std::string, std::vector<std::pair<int, std::string>>> by_name;\n'
    printf '  int ask(const std::string &who) {\n    auto &v = by_name[who]; v.emplace_back(N, who);\n'
    printf '    std::sort(v.begin(), v.end()); return std::make_shared<int>(v.size() + N).use_count();\n  }\n};\n'
    for ((i = 0; i < 5 * scale; i++)); do printf 'int ask%d(const std::string &who) { return Shop<%d>().ask(who); }\n' $i $i; done
  } >work.cpp
}

run() { profiled g++ -O1 -c work.cpp -o work.o && cksum <work.o && nm --demangle work.o | cksum; }
