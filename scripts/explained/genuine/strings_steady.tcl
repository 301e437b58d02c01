# Pages that are made and dropped, and a table of the last of them.
#
# expect: cache|churn|one-time|nothing *
set seconds [expr {[llength $argv] ? [lindex $argv 0] : 1000000}]
set end [expr {[clock milliseconds] + int($seconds * 1000)}]
set number 0
while {[clock milliseconds] < $end} {
    for {set i 0} {$i < 10} {incr i} {
        set pages([expr {[incr number] % 1500}]) [string repeat "page $number " 900]
    }
    after 60
}
puts [array size pages]
