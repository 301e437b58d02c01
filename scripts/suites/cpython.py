"""CPython's own tests: a unit is a module of tests; the processes that it starts are recorded, too.

PYTHONMALLOC=malloc makes the interpreter allocate its objects one by one.
"""

import os
import sys
import tempfile
import xml.etree.ElementTree

from . import machine
from .process import run

TITLE = "CPython's own tests"
UNITS = "modules"
UNIT_IS_TEST = False
ALONE = False

PYTHON = "/usr/bin/python3.11"
FOLDER = "/usr/lib/python3.11/test"

# Threads, processes, signals, foreign functions, files, and a wide rest. Not here: tests that need
# a network, a display, or minutes without any library.
CPYTHON = """
test_threading test_thread test_threading_local test_threadedtempfile test_threadsignals test_thread_local_bytecode
test_queue test_sched test_fork1 test_wait3 test_wait4 test_subprocess test_posix test_popen test_pty test_signal
test_ctypes test_cffi test_mmap test_fcntl test_select test_selectors test_poll test_epoll test_pipes test_os
test_multiprocessing_main_handling test_multiprocessing_fork test_multiprocessing_forkserver
test_asyncio test_asyncgen test_asyncore test_asynchat test_contextlib_async
test_socket test_socketserver test_httpservers test_httplib test_ssl test_ftplib test_smtplib test_poplib test_imaplib
test_urllib2_localnet test_xmlrpc test_logging test_faulthandler test_gc test_weakref test_weakset test_capi
test_sys test_sys_settrace test_resource test_atexit test_crashers test_cmd_line test_cmd_line_script test_script_helper
test_runpy test_site test_importlib test_import test_threaded_import test_zipimport test_tarfile
test_gzip test_bz2 test_lzma test_zlib test_shelve test_dbm test_dbm_gnu test_dbm_ndbm test_sqlite3 test_pickle test_copy
test_json test_csv test_xml_etree test_xml_etree_c test_pyexpat test_sax test_minidom test_plistlib test_email test_re
test_unicode test_bytes test_bytearray test_memoryview test_array test_struct test_buffer test_io test_file test_fileio
test_bufio test_tempfile test_shutil test_pathlib test_glob test_list test_dict test_set test_deque test_heapq
test_collections test_itertools test_functools test_generators test_coroutines test_exceptions test_traceback
test_tracemalloc test_fractions test_float test_complex test_int test_math
test_random test_hashlib test_hmac test_datetime test_zoneinfo test_time test_locale test_codecs test_ast test_compile
test_dis test_inspect test_typing test_dataclasses test_enum test_descr test_class test_super test_property test_doctest
test_unittest test_argparse test_configparser test_getopt test_textwrap test_difflib test_string test_format
""".split()



def install():
    machine.install({"libpython3.11-testsuite": f"{FOLDER}/test_dict.py"})


def units():
    return [name for name in CPYTHON if os.path.exists(f"{FOLDER}/{name}.py") or os.path.isdir(f"{FOLDER}/{name}")]


def run_unit(module, variables, timeout):
    with tempfile.TemporaryDirectory() as folder:
        results = os.path.join(folder, "results.xml")
        logs = os.path.join(folder, "logs")
        os.mkdir(logs)
        os.mkdir(f"{folder}/tmp")
        environment = {
            "PATH": "/usr/bin:/bin", "HOME": folder, "LC_ALL": "C.UTF-8", "TMPDIR": f"{folder}/tmp", "PYTHONMALLOC": "malloc",
            # Outside the folder of the tests, because some tests list that folder.
            "HEAPPROFILE": os.path.join(logs, "p"), **variables,
        }
        # Tests of sockets between a virtual machine and its host are left out: without a peer they
        # wait for one in every way.
        command = [PYTHON, "-u", "-m", "test", "--junit-xml", results, "--timeout", str(timeout), "--ignore", "*VSOCK*", module]
        # regrtest: 2 a test failed, 3 failed because the environment changed, 4 nothing ran.
        verdicts = {module: run(command, folder, environment, timeout, {4: "skipped"}).verdict}
        try:
            cases = xml.etree.ElementTree.parse(results).getroot().iter("testcase")
        except (OSError, xml.etree.ElementTree.ParseError):
            return verdicts
        for case in cases:
            kinds = {child.tag for child in case}
            verdict = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            verdicts[f"{module}: {case.get('name')}"] = verdict
            if verdict == "failed":
                why = "".join(child.text or "" for child in case if child.tag in ("failure", "error")).strip()
                print(f"    {case.get('name')}: {why.splitlines()[-1:]}", file=sys.stderr)
        return verdicts
