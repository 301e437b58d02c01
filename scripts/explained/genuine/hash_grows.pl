# Sessions in a hash that nothing is deleted from.
#
# expect: leak *; growing block|churn|nothing *
use strict;
use warnings;
use Time::HiRes qw(time sleep);

my $end = time + ($ARGV[0] // 1e9);
my (%sessions, $number);
while (time < $end) {
    $sessions{"session " . ++$number} = { user => $number, data => "d" x 2000 } for 1 .. 15;
    sleep 0.06;
}
print scalar(keys %sessions), "\n";
