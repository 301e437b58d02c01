"""The input of the real programs: the same in every run."""

import os
import subprocess

from .runner import clean_environment

PYTHON_WORK = """\
import json, sys
rows = [{"id": i, "name": "row %d" % i, "tags": ["t%d" % (i % 7), "u%d" % (i % 11)], "value": i * 0.5,
         "nested": {"a": [1, 2, 3, i], "b": None, "c": str(i) * 3}} for i in range(3000)]
for _ in range(int(sys.argv[1])):
    text = json.dumps(rows, indent=1)
    back = json.loads(text)
    index = {row["name"]: row for row in back}
    words = sorted(word.upper() for word in text.split())
    assert len(index) == len(rows) and words
"""

PERL_WORK = r"""
use strict;
my $rounds = shift;
for my $round (1 .. $rounds) {
    my (%count, @lines, %index);
    for my $i (1 .. 4000) {
        my $line = join " ", map { "word" . (($i * $_ * 7919) % 997) } 1 .. 8;
        push @lines, $line;
        $count{$_}++ for split / /, $line;
        push @{ $index{ substr $line, 4, 3 } }, { line => $line, at => $i };
    }
    my @top = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
    my $text = join "\n", map { "$_: $count{$_}" } @top;
    $text =~ s/(\w+)/<$1>/g;
}
"""


def sql_work(thousands):
    yield "create table t (id integer primary key, a text, b integer, c real); create index ta on t (a); begin;"
    for i in range(thousands * 400):
        yield f"insert into t values ({i}, 'text {i * 7919 % 10007} of row {i}', {i * 31 % 1009}, {i}.5);"
    yield "commit;"
    for i in range(thousands * 8):
        yield f"select count(*), sum(c), max(a) from t where b = {i * 17 % 1009} and a like 'text {i % 10}%';"
        yield f"update t set a = a || '{i}' where id between {i * 40} and {i * 40 + 20};"
    yield "select b, count(*), group_concat(id) from t group by b order by 2 desc limit 5;"


def c_work(functions):
    yield "#include <stddef.h>\nstruct node { struct node *next; int key; double weight; char name[24]; };"
    for i in range(functions):
        yield (
            f"static int helper_{i}(struct node *list, int bound) {{ int sum = {i}; for (struct node *at = list; at != NULL; "
            f"at = at->next) {{ if (at->key > bound + {i % 17}) sum += at->key * {i + 3}; else switch (at->key & 7) {{ "
            f"case 0: sum ^= {i}; break; case 1: sum -= bound; break; case 5: sum = sum / (bound | 1); break; default: "
            f"at->weight *= {i}.25; for (size_t j = 0; j < sizeof at->name; j++) sum += at->name[j] << (j % {i % 5 + 1}); }} }} return sum; }}\n"
            f"int entry_{i}(struct node *list, int *out, int n) {{ int total = 0; for (int j = 0; j < n; j++) {{ out[j] = "
            f"helper_{i}(list, j); total += out[j] > {i} ? out[j] : -out[j]; if (total > 1000 * {i + 1}) return j; }} return total; }}"
        )


def prepare_data(data, chosen):
    """Writes the input of the real programs; the same in every run."""
    names = {workload.name: workload for workload in chosen}
    if "python3" in names:
        write(f"{data}/work.py", [PYTHON_WORK])
    if "perl" in names:
        write(f"{data}/work.pl", [PERL_WORK])
    if "sqlite3" in names:
        for n in (names["sqlite3"].n, names["sqlite3"].exact_n):
            write(f"{data}/work-{n}.sql", sql_work(n))
    if "gcc -O1" in names:
        # The compiler proper: recorders that do not follow into children would see the driver only.
        cc1 = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True, check=True).stdout.strip()
        os.symlink(cc1, f"{data}/cc1")
        for n in (names["gcc -O1"].n, names["gcc -O1"].exact_n):
            write(f"{data}/work-{n}.c", c_work(n))
    if "git" in names:
        # One pack from a stream of commits, without a process for each.
        stream = []
        for commit in range(400):
            text = "".join(f"line {i} of a file, last changed in {commit - (commit + i) % 23}\n" for i in range(80))
            stream.append(
                f"commit refs/heads/main\ncommitter A U Thor <a@example.org> {1600000000 + commit} +0000\ndata 8\ncommit\n\n"
                f"M 100644 inline dir{commit % 9}/file{commit % 60}\ndata {len(text)}\n{text}\n"
            )
        subprocess.run(["/usr/bin/git", "init", "-q", "--bare", f"{data}/repo"], check=True, env=clean_environment())
        subprocess.run(["/usr/bin/git", "-C", f"{data}/repo", "fast-import", "--quiet"], input="".join(stream).encode(), check=True,
                       env=clean_environment())


def write(path, lines):
    with open(path, "w") as file:
        file.writelines(line if line.endswith("\n") else line + "\n" for line in lines)
