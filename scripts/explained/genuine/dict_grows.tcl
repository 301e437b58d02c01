# Answers in a dictionary that only grows.
#
# expect: leak *; growing block|churn|nothing *
set seconds [expr {[llength $argv] ? [lindex $argv 0] : 1000000}]
set end [expr {[clock milliseconds] + int($seconds * 1000)}]
set answers [dict create]
set number 0
while {[clock milliseconds] < $end} {
    for {set i 0} {$i < 10} {incr i} {
        dict set answers [incr number] [string repeat "answer $number " 300]
    }
    after 60
}
puts [dict size $answers]
