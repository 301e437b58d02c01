# A redis-server whose keys expire after some seconds.
#
# expect: cache|churn|nothing *
# program: redis-server
from redis import serve

serve([], lambda step: [["SET", f"token:{step}:{i}", "t" * 2000, "PX", "7000"] for i in range(40)])
