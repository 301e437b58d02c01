# A redis-server with a limit on its memory: it evicts old keys when new ones come.
#
# expect: cache|churn|nothing *
# program: redis-server
from redis import serve

OPTIONS = ["--maxmemory", "16mb", "--maxmemory-policy", "allkeys-lru"]
serve(OPTIONS, lambda step: [["SET", f"page:{step}:{i}", "p" * 3000] for i in range(40)])
