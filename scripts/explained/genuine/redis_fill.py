# A redis-server whose keys have no end: each visitor adds one.
#
# expect: leak *; growing block|churn|nothing *
# program: redis-server
from redis import serve

serve([], lambda step: [["SET", f"visitor:{step}:{i}", "v" * 900] for i in range(40)])
