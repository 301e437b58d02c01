# shellcheck shell=bash disable=SC2034,SC2154 # variables are shared with real-programs
# JSON and dictionaries in four threads, then children.

packages=(python3)

prepare() {
  cat >work.py <<'END'
import collections, json, subprocess, sys, threading

def orders(seed, count):
    return [{"id": i, "who": f"customer {(i * seed) % 97}", "items": list(range(i % 7))} for i in range(count)]

def summarize(seed, count, answers):
    texts = [json.dumps(order) for order in orders(seed, count)]
    by_customer = collections.defaultdict(list)
    for order in map(json.loads, texts):
        by_customer[order["who"]].append(order)
    answers[seed] = sorted((len(found), who) for who, found in by_customer.items())[-3:]

count, answers = int(sys.argv[1]), {}
threads = [threading.Thread(target=summarize, args=(seed, count, answers)) for seed in (3, 5, 7, 11)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(answers, sort_keys=True))
for word in "one two three".split():
    child = subprocess.run([sys.executable, "-c", f"print('{word}'.upper() * 3)"], capture_output=True, text=True)
    print(child.returncode, child.stdout.strip())
sys.exit(3)
END
}

run() { PYTHONMALLOC=malloc PYTHONHASHSEED=0 profiled python3 work.py $((2500 * scale)); }
