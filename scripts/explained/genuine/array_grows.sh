#!/usr/bin/env bash
# A shell script that gathers its log in an array.
#
# expect: leak *; growing block|churn|nothing *
# program: bash
end=$((SECONDS + ${1:-1000000}))
exec 9<> <(:)
printf -v text '%03000d' 7
lines=()
while ((SECONDS < end)); do
    for i in 1 2 3 4 5 6 7 8 9 10; do
        lines+=("$SECONDS $i $text")
    done
    read -r -t 0.06 -u 9
done
echo "${#lines[@]}"
