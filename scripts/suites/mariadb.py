"""MariaDB's mysql-test: a unit is a test; the server is recorded, and the test driver is not."""

import os
import re
import subprocess
import tempfile

from . import machine

TITLE = "MariaDB's mysql-test, suite main"
UNITS = "tests"
UNIT_IS_TEST = True
# Two servers would share ports.
ALONE = True

MTR = "/usr/share/mysql/mysql-test"

# Tests of the suite "main": the server's threads, its memory, sorting, temporary tables, prepared
# statements, stored programs.
MARIADB = """
1st alias alter_table analyze ansi bench_count_distinct bigint binary bool bulk_replace case cast commit_1innodb compare
concurrent_innodb_safelog consistent_snapshot constraints count_distinct count_distinct2 create_select cte_nonrecursive
ctype_latin1 date_formats deadlock_innodb default delete derived derived_view distinct dyncol endspace errors events_1 explain
fetch_first flush fulltext func_concat func_crypt func_date_add func_gconcat func_group func_hybrid_type func_if func_in
func_json func_like func_math func_op func_regexp func_str func_time gis greedy_optimizer group_by group_min_max having heap
in_datetime_241 index_merge_myisam information_schema_part innodb_mrr_cpk insert insert_select intersect join join_cache
join_nested key key_cache kill limit lock lock_multi loaddata metadata multi_update mysqldump negation_elimination null
olap order_by parser partition partition_innodb ps ps_1general query_cache range repair row select select_safe show_check
sp sp-error sp-threads sp-vars sql_mode subselect subselect_sj symlink temp_table trigger truncate type_blob type_date
type_decimal type_float type_newdecimal type_varchar union update user_var variables view win xa
""".split()


def install():
    machine.install({"mariadb-test": MTR})


def units():
    if not os.path.exists(f"{MTR}/mtr"):
        return []
    return [name for name in MARIADB if os.path.exists(f"{MTR}/main/{name}.test")]


def run_unit(test, variables, timeout):
    return run_all([test], variables, timeout)


def run_all(tests, variables, timeout):
    """All tests behind one start of the driver, which takes longer than most tests."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {"HEAPPROFILE": f"{folder}/p", **variables} if variables else {}
        command = [f"{MTR}/mtr", f"--vardir={folder}/var", "--force", "--retry=0", "--max-test-fail=0", "--skip-rpl",
                   f"--testcase-timeout={max(timeout // 60, 1)}"]
        command += [f"--mysqld-env={name}={value}" for name, value in variables.items()]
        output = subprocess.run(command + [f"main.{test}" for test in tests], cwd=MTR, stdin=subprocess.DEVNULL, text=True, errors="replace",
                                capture_output=True, timeout=timeout * max(len(tests), 1) + 300).stdout
    verdicts = {}
    for line in output.splitlines():
        found = re.match(r"main\.(\S+)(?: '[^']*')?(?: w\d+)?\s+\[ (pass|fail|skipped|disabled) \]", line)
        if found:
            verdict = {"pass": "passed", "fail": "failed"}.get(found[2], "skipped")
            # Combinations (innodb, myisam …) of one test: it passed if all did.
            if verdicts.get(found[1]) != "failed":
                verdicts[found[1]] = verdict
    return verdicts
