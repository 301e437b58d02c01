# A queue of a fixed length: each new line replaces the oldest.
#
# expect: cache|churn|nothing *
use strict;
use warnings;
use Time::HiRes qw(time sleep);

my $end = time + ($ARGV[0] // 1e9);
my (@lines, $number);
while (time < $end) {
    for (1 .. 30) {
        push @lines, "line " . ++$number . " " . "x" x (2000 + rand 6000);
        shift @lines if @lines > 3000;
    }
    sleep 0.06;
}
print scalar(@lines), "\n";
